"""Journals of running processes end where the energy of all phases is final."""

import json
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.accounting.journal.journal import energy_as_json
from energy_callbacks.core.records import Energy
from energy_callbacks.report.build import build
from energy_callbacks.report.model.schema import EnergyReport
from tests.report.journals import GPU, Attempt, Stretch, write

TRAIN = Stretch(phase="train", duration_s=5.0, power_w={"gpu0": 400.0})
REST = Stretch(phase="validation", duration_s=5.0, power_w={"gpu0": 100.0})
RUN = Attempt(devices=(GPU,), stretches=(TRAIN, REST) * 4, cut_off_at_s=36.0)


def running(folder: Path, *lines: dict[str, Any], settled_s: float = 25.0) -> EnergyReport:
    """A report of a run whose spans after ``settled_s`` have not been written yet."""
    path = write(folder, RUN)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [one for one in records if one.get("kind") != "span" or one["end_s"] <= settled_s]
    path.write_text("\n".join(map(json.dumps, [*kept, *lines])) + "\n")
    return build(path, now_unix_s=RUN.unix_s + 36.5)


def so_far(t_s: float, energy_j: float) -> dict[str, Any]:
    """A line ``so_far``."""
    energy = energy_as_json(Energy(energy_j=energy_j, method="power", coverage=1.0))
    return {"type": "so_far", "t_s": t_s, "energy": {"gpu0": energy}}


def joules(report: EnergyReport) -> dict[str, float | None]:
    """Energy of each phase."""
    return {phase.name: phase.gpu.energy_j for phase in report.phases}


def test_it_ends_with_the_newest_span(tmp_path: Path) -> None:
    """Three trainings and two validations are final; the rest of 36 s is left out."""
    report = running(tmp_path)
    assert report.run.status == "running"
    assert report.run.duration_s == 25.0
    assert joules(report) == {"train": 6000.0, "validation": 1000.0}
    assert report.energy.gpu.energy_j == 7000.0
    assert max(curve.t_s[-1] for curve in report.series) <= 25.0
    assert report.warnings[0].message.endswith("covers its first 25.0 s.")


def test_a_later_line_with_the_total_belongs_to_the_phase_of_its_time(tmp_path: Path) -> None:
    """The energy from 25 to 27 s is that of the validation that began at 25 s."""
    report = running(tmp_path, so_far(27.0, 7200.0))
    assert report.run.duration_s == 27.0
    assert joules(report) == pytest.approx({"train": 6000.0, "validation": 1200.0})


def test_steps_end_there_too(tmp_path: Path) -> None:
    """Of the step line that contains the end, a share in proportion to time counts."""
    report = running(tmp_path, so_far(21.5, 5600.0), settled_s=20.0)
    whole = 10.0 / RUN.step_s
    assert report.throughput.steps == round(whole + 1.5 / RUN.step_s)
    assert report.throughput.train_s == pytest.approx(11.5)
    ratio = report.efficiency.gpu.j_per_step
    assert ratio is not None
    assert ratio.value_j == pytest.approx(400.0 * RUN.step_s, rel=0.01)


def test_nothing_is_final_at_first(tmp_path: Path) -> None:
    """Before the first span is final, the report has no energy instead of a wrong one."""
    report = running(tmp_path, settled_s=0.0)
    assert report.run.duration_s == 0.0
    assert report.energy.gpu.energy_j is None


def test_a_run_that_was_cut_off_is_counted_to_its_last_line(tmp_path: Path) -> None:
    """Nothing that was written is left out once the process is gone."""
    running(tmp_path)
    report = build(tmp_path, now_unix_s=RUN.unix_s + 100.0)
    assert (report.run.status, report.run.duration_s) == ("cut off", 36.0)
