"""A run as most are: two phases with a validation in one, a measured GPU, an estimated CPU."""

from pathlib import Path

import pytest

from energy_callbacks.report.build import build
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
