"""Fixtures for all tests of accounting."""

from tests.charts import no_charts  # noqa: F401 - a fixture
