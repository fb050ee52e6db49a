"""Fixtures for all tests of sensors."""

from tests.charts import no_charts  # noqa: F401 - a fixture
