"""Fixtures for the tests of matrices."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.compare.without_charts import no_charts_of_comparisons  # noqa: F401 - likewise
from tests.fake_nvml.fixtures import fake_nvml  # noqa: F401 - likewise
from tests.matrix.lab import Lab
from tests.matrix.launcher import Launcher


@pytest.fixture(autouse=True)
def no_picture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the chart of a matrix, as ``no_charts`` does for other charts."""
    if request.node.get_closest_marker("charts") is None:
        name = "energy_callbacks.matrix.summary.energies_figure"
        monkeypatch.setattr(name, lambda *_, **__: None)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Provide a folder with a matrix, on a machine without a GPU."""
    one = Lab(tmp_path)
    yield one
    one.close()


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """Simulate jobs."""
    one = Launcher()
    one.install(monkeypatch)
    return one
