"""What the tests of all frameworks share."""

import pytest

from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.fake_nvml.fixtures import fake_nvml  # noqa: F401 - a fixture

pytest.register_assert_rewrite("tests.integrations.contract")
