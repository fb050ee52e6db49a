"""A run as most are: two phases with a validation in one, a measured GPU, an estimated CPU."""

from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.report.batch_sizes import BatchSizeCurve, BatchSizePoint
from energy_callbacks.report.build import build
from energy_callbacks.report.parts import Ratio
from energy_callbacks.report.schema import EnergyReport
from tests.report.journals import GERMANY, Attempt, Window, write

VALIDATION = Window(
    name="validation", start_s=40.0, end_s=45.0, energy_j={"gpu0": 1500.0, "cpu0": 400.0}
)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A folder with one finished run."""
    folder = tmp_path / "run"
    write(folder, Attempt(windows=(VALIDATION,), config={"place": GERMANY, "price_per_kwh": 0.3}))
    return folder


@pytest.fixture
def report(run_folder: Path) -> EnergyReport:
    """Its report."""
    return build(run_folder)


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


@pytest.fixture
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
