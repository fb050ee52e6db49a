"""What the tests of all frameworks share."""

import gc

import pytest

from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.fake_nvml.fixtures import fake_nvml  # noqa: F401 - a fixture

pytest.register_assert_rewrite("tests.integrations.contract")


@pytest.fixture(scope="session", autouse=True)
def _frozen_imports() -> None:
    """Frameworks collect garbage in each training: 0.3 s where that looks at all that they are."""
    gc.collect()
    gc.freeze()
