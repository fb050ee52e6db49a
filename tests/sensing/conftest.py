"""Fixtures for all tests of sensors."""

import pytest

from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.fake_nvml.fixtures import wait_long


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_long(monkeypatch)
