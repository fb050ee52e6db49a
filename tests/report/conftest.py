"""A run as most are: two phases with a validation in one, a measured GPU, an estimated CPU."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.report.build import build
from energy_callbacks.report.model.amounts import Ratio
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve, BatchSizePoint
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render import html
from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.compare.without_charts import no_charts_of_comparisons  # noqa: F401 - likewise
from tests.report.journals import GERMANY, Attempt, Window, write

CHROMIUM = shutil.which("chromium")

VALIDATION = Window(
    name="validation", start_s=40.0, end_s=45.0, energy_j={"gpu0": 1500.0, "cpu0": 400.0}
)


METRICS = [
    (20.0 + 10.0 * i, {"train_loss": 2.0 / i, "val_loss": 2.2 / i}, 100 * i, float(i))
    for i in range(1, 6)
]


def _written(folder: Path) -> Path:
    config = {"place": GERMANY, "price_per_kwh": 0.3}
    write(folder, Attempt(windows=(VALIDATION,), config=config, metrics=METRICS))
    return folder


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A folder with one finished run."""
    return _written(tmp_path / "run")


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> EnergyReport:
    """The report of such a folder."""
    return build(_written(tmp_path_factory.mktemp("usual") / "run"))


@pytest.fixture(scope="session")
def plain_page(report: EnergyReport) -> str:
    """Its page with all charts."""
    return html.render(report)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium; closed with the module, since its event loop is in the way of others."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        found = play.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield found
        found.close()


def _trial(size: int, samples_per_s: float | None) -> BatchSizePoint:
    fits = samples_per_s is not None
    return BatchSizePoint(
        size=size,
        accumulation=1,
        fits=fits,
        reason="" if fits else "out of memory",
        samples_per_s=samples_per_s,
        samples_per_s_error=1.0 if fits else None,
        scope="gpu",
        power_w=300.0 if fits else None,
        j_per_sample=Ratio(value_j=0.3, low_j=0.29, high_j=0.31) if fits else None,
        peak_bytes=size * 2**28 if fits else None,
    )


@pytest.fixture(scope="session")
def tuned(report: EnergyReport) -> EnergyReport:
    """The same after two searches for a batch size."""
    curve = BatchSizeCurve(
        size=16,
        why="the knee is 16",
        objective="knee",
        points=(_trial(8, 900.0), _trial(16, 1000.0), _trial(32, None)),
        memory_bytes=8 * 2**30,
        duration_s=9.0,
        energy_j=2000.0,
    )
    return replace(report, batch_sizes=(curve, curve))
