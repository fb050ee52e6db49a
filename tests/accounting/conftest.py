"""What the tests of accounting share."""

from tests.charts import no_charts  # noqa: F401 - a fixture
