"""Fixtures for tests that need GPUs with known power.

``conftest.py`` needs ``from tests.fake_nvml.fixtures import fake_nvml``.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fake_nvml.library import FakeNvml
from tests.fake_nvml.scenario import Scenario


@pytest.fixture
def fake_nvml(tmp_path: Path) -> Iterator[Callable[..., FakeNvml]]:
    """``fake_nvml(scenario, virtual=True)`` plays a scenario in this process during the test."""
    loaded: list[FakeNvml] = []

    def load(scenario: Scenario, *, virtual: bool = True) -> FakeNvml:
        loaded.append(FakeNvml(scenario, tmp_path, virtual=virtual))
        return loaded[-1]

    yield load
    for nvml in reversed(loaded):
        nvml.close()
