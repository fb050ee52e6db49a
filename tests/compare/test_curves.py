"""Curves of runs have few points, and show the memory of the fullest GPU."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from energy_callbacks.compare.curves import run_curve
from energy_callbacks.report import EnergyReport, build
from energy_callbacks.report.model.metrics import Metric
from tests.report.journals import CPU, GPU, GPU1, PROCESS, Attempt, write


@pytest.fixture
def report(tmp_path: Path) -> EnergyReport:
    """A report of 800 steps in 80 s, with the energy of one GPU and the CPU."""
    write(tmp_path, Attempt(devices=(GPU, GPU1, CPU, PROCESS)))
    return build(tmp_path)


def test_power_is_thinned_and_keeps_its_energy(report: EnergyReport) -> None:
    """At most 120 bins, whose energies add up to the total."""
    found = run_curve(report, None)
    assert 60 < len(found.t_s) <= 120
    widths_s = [after - before for before, after in pairwise((0.0, *found.t_s))]
    energy_j = sum(w * p for w, p in zip(widths_s, found.power_w, strict=True))
    assert energy_j == pytest.approx(report.energy.total.energy_j, rel=0.02)
    assert len(found.step) == len(found.step_energy_j) <= 120
    assert found.step[-1] == report.throughput.steps


def test_memory_is_that_of_the_gpu_with_the_highest_peak(report: EnergyReport) -> None:
    """The process counts only if no GPU has memory."""

    def peak(of: dict[str, float]) -> float:
        series = [
            replace(one, memory_bytes=(of.get(one.key),) * len(one.t_s)) for one in report.series
        ]
        memory = run_curve(replace(report, series=tuple(series)), None).memory_bytes
        return max((one or 0.0 for one in memory), default=0.0)

    assert peak({"gpu0": 2.0, "gpu1": 3.0, "process": 9.0}) == 3.0
    assert peak({"process": 9.0}) == 9.0
    assert peak({}) == 0.0


def test_values_without_an_energy_are_left_out(report: EnergyReport) -> None:
    """The metric is drawn over the energy, so both must be known."""
    metric = Metric(
        name="loss", t_s=(1.0, 2.0), step=(1, 2), epoch=(None, None), energy_j=(None, 7.0),
        value=(0.5, 0.4),
    )  # fmt: skip
    found = run_curve(report, metric)
    assert (found.metric_energy_j, found.metric) == ((7.0,), (0.4,))
