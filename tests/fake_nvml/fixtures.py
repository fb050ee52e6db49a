"""Fixtures for tests that need GPUs with known power.

``conftest.py`` needs ``from tests.fake_nvml.fixtures import fake_nvml``.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fake_nvml.library import FakeNvml
from tests.fake_nvml.scenario import Scenario


def wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long for the driver: on a busy machine, its thread may begin late."""
    monkeypatch.setattr("energy_callbacks.sensing.time_limit.PATIENCE_S", 60.0)
    monkeypatch.setattr("energy_callbacks.sensing.sources.nvidia.processes._PATIENCE_S", 60.0)


@pytest.fixture
def fake_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeNvml]]:
    """``fake_nvml(scenario, virtual=True)`` plays a scenario in this process during the test."""
    wait_long(monkeypatch)
    loaded: list[FakeNvml] = []

    def load(scenario: Scenario, *, virtual: bool = True) -> FakeNvml:
        loaded.append(FakeNvml(scenario, tmp_path, virtual=virtual))
        return loaded[-1]

    yield load
    for nvml in reversed(loaded):
        nvml.close()
