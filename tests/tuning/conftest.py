"""What tests of the tuner share."""

from tests.charts import no_charts  # noqa: F401 - a fixture of all tests here
