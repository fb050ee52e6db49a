"""A measured command and the trainings inside it, in figures that can be worked out on paper.

The card draws 500 W all the time and the CPU 100 W: each second of any phase takes 600 J.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.accounting.journal.launch import COMMAND
from energy_callbacks.core.records import Energy
from energy_callbacks.report.build import build
from tests.report.journals import CPU, GERMANY, GPU, GPU1, PROCESS, Attempt, Stretch, Window, write

WATTS = {"gpu0": 500.0, "cpu0": 100.0}
BEGAN_S = 1_790_000_000.0
OUTER = Attempt(
    framework=COMMAND,
    run_id="command",
    unix_s=BEGAN_S,
    run_name=None,
    samples_per_step=None,
    stretches=(Stretch(phase="idle", duration_s=100.0, power_w=WATTS),),
)
FIRST = Attempt(
    attempt=2,
    run_id="first",
    unix_s=BEGAN_S + 20.0,
    config={"place": GERMANY, "pue": 1.5},
    stretches=(
        Stretch(phase="train", duration_s=30.0, power_w=WATTS),
        Stretch(phase="idle", duration_s=2.0, power_w=WATTS),
    ),
    windows=(
        Window(name="validation", start_s=10.0, end_s=15.0, energy_j=dict.fromkeys(WATTS, 9.0)),
    ),
)
SECOND = replace(
    FIRST,
    attempt=3,
    run_id="second",
    unix_s=BEGAN_S + 60.0,
    stretches=(Stretch(phase="test", duration_s=10.0, power_w=WATTS),),
    windows=(),
)


def folder_of(folder: Path, *attempts: Attempt) -> Path:
    """A run folder."""
    for attempt in attempts:
        write(folder, attempt)
    return folder


def append(path: Path, line: dict[str, Any]) -> None:
    """Add a line after the header of a journal."""
    header, *others = path.read_text().splitlines()
    path.write_text("\n".join([header, json.dumps(line), *others, ""]))


def test_a_command_alone(tmp_path: Path) -> None:
    """It is one phase; nobody calls another program idle."""
    report = build(folder_of(tmp_path, OUTER))
    assert [(phase.name, phase.total.energy_j) for phase in report.phases] == [(COMMAND, 60_000.0)]
    assert [span.phase for span in report.timeline] == [COMMAND]


def test_waits_for_data_are_those_of_all_trainings(tmp_path: Path) -> None:
    """400 J of one and 200 J of the other."""

    def waiting(training: Attempt, energy_j: float) -> Attempt:
        energy = {"gpu0": Energy(energy_j=energy_j, coverage=1.0)}
        return replace(training, wait_known_s=4.0, wait_energy=energy)

    report = build(folder_of(tmp_path, OUTER, waiting(FIRST, 400.0), waiting(SECOND, 200.0)))
    assert report.throughput.data_wait.gpu.value_j == pytest.approx(600.0)


def test_phases_are_those_of_the_trainings_and_sum_to_the_command(tmp_path: Path) -> None:
    """30 s of training with a validation in it, 10 s of test, and the rest of 100 s."""
    report = build(folder_of(tmp_path, OUTER, FIRST, SECOND))
    seconds = {phase.name: phase.duration_s for phase in report.phases}
    assert seconds == pytest.approx(
        {"train": 25.0, "validation": 5.0, "idle": 2.0, "test": 10.0, COMMAND: 58.0}
    )
    joules = {phase.name: phase.total.energy_j for phase in report.phases}
    assert joules == pytest.approx(
        {"train": 600.0 * 30.0 - 18.0, "validation": 18.0, "idle": 1200.0, "test": 6000.0,
         COMMAND: 600.0 * 58.0}
    )  # fmt: skip
    assert report.energy.total.energy_j == pytest.approx(60_000.0)
    assert report.run.duration_s == 100.0
    named = [(span.phase, span.start_s, span.end_s) for span in report.timeline]
    assert named == [
        (COMMAND, 0.0, 20.0),
        ("train", 20.0, 50.0),
        ("validation", 30.0, 35.0),
        ("idle", 50.0, 52.0),
        (COMMAND, 52.0, 60.0),
        ("test", 60.0, 70.0),
        (COMMAND, 70.0, 100.0),
    ]


def test_the_edges_of_the_trainings_are_edges_of_the_command(tmp_path: Path) -> None:
    """4 J each of the command and of two trainings; edges between their phases do not count."""
    attempts = (replace(one, devices=(GPU,), edge_j=4.0) for one in (OUTER, FIRST, SECOND))
    report = build(folder_of(tmp_path, *attempts))
    edge_j = {phase.name: phase.gpu.edge_j for phase in report.phases}
    assert edge_j == pytest.approx(
        {"train": 8.0, "validation": 4.0, "idle": 4.0, "test": 4.0, COMMAND: 12.0}
    )
    assert report.energy.gpu.edge_j == 4.0


def test_work_and_settings_are_the_trainings(tmp_path: Path) -> None:
    """Steps, samples, framework and place; what the command line says has precedence."""
    report = build(folder_of(tmp_path / "plain", OUTER, FIRST))
    assert (report.throughput.steps, report.throughput.samples) == (300, 9600)
    assert (report.run.framework, report.run.name, report.run.run_id) == (
        "lightning", "resnet", "first"
    )  # fmt: skip
    assert report.memory.peak_allocated_bytes == 30e9
    emissions = report.emissions
    assert emissions is not None
    assert (emissions.place, emissions.pue) == ("Germany", 1.5)
    asked = replace(
        OUTER,
        run_name="mine",
        config={"place": {**GERMANY, "country_name": "Atlantis"}, "pue": 1.1},
    )
    report = build(folder_of(tmp_path / "asked", asked, FIRST))
    assert report.run.name == "mine"
    assert report.emissions is not None
    assert (report.emissions.place, report.emissions.pue) == ("Atlantis", 1.1)


def test_what_only_the_training_knows(tmp_path: Path) -> None:
    """Its allocator's memory, on the time of the command."""
    own = replace(PROCESS, key="allocator")
    report = build(folder_of(tmp_path, OUTER, replace(FIRST, devices=(GPU, CPU, own))))
    curve = next(one for one in report.series if one.key == "allocator")
    assert curve.t_s[0] == pytest.approx(20.5)
    assert curve.t_s[-1] == pytest.approx(52.0)


def test_metrics_stand_on_the_time_and_the_energy_of_the_command(tmp_path: Path) -> None:
    """10 s into a training that began after 20 s: 30 s at 600 W."""
    told = replace(FIRST, metrics=[(10.0, {"loss": 1.0}, 100, 1.0)])
    (loss,) = build(folder_of(tmp_path, OUTER, told)).metrics
    assert loss.t_s == pytest.approx((30.0,))
    assert loss.energy_j == pytest.approx((18_000.0,))


def test_changes_of_a_power_limit_are_the_trainings(tmp_path: Path) -> None:
    """300 W from 5 s on, in a training that began after 20 s."""
    write(tmp_path, OUTER)
    path = write(tmp_path, FIRST)
    change = {"type": "event", "kind": "power_limit", "t_s": 5.0, "knob": "limit", "value": 300.0}
    append(path, change | {"why": "chosen", "devices": [GPU.uuid]})
    (found,) = build(tmp_path).power_changes
    assert (found.t_s, found.value) == (25.0, 300.0)


def test_a_card_that_only_the_trainings_have_read(tmp_path: Path) -> None:
    """Its energy is that of their time, and its coverage says so; the curve has all of it."""
    host = replace(OUTER, devices=(CPU, PROCESS))
    report = build(folder_of(tmp_path, host, FIRST, SECOND))
    gpu = report.energy.gpu
    assert gpu.energy_j == pytest.approx(500.0 * (32.0 + 10.0))
    assert gpu.coverage == pytest.approx(0.42)
    joules = {phase.name: phase.gpu.energy_j for phase in report.phases}
    assert joules["train"] == pytest.approx(500.0 * 30.0 - 9.0)
    assert joules["test"] == pytest.approx(5000.0)
    assert joules[COMMAND] == pytest.approx(0.0, abs=1e-6)
    curve = next(one for one in report.series if one.key == "gpu0")
    seen_j = sum(s * (p or 0.0) for s, p in zip(curve.seen_s, curve.power_w, strict=True))
    assert seen_j == pytest.approx(21_000.0, rel=1e-3)
    assert "low_coverage" in [warning.code for warning in report.warnings]


def test_a_training_that_read_more_than_the_command(tmp_path: Path) -> None:
    """Two readers of one sensor differ at the edges: phases still sum, and none is negative."""
    hotter = {"gpu0": 505.0, "cpu0": 100.0}
    whole = replace(
        FIRST,
        unix_s=BEGAN_S,
        stretches=(Stretch(phase="train", duration_s=100.0, power_w=hotter),),
        windows=(),
    )
    report = build(folder_of(tmp_path, OUTER, whole))
    phases = {phase.name: phase.gpu.energy_j for phase in report.phases}
    assert phases["train"] == pytest.approx(50_000.0)
    assert phases.get(COMMAND, 0.0) == pytest.approx(0.0, abs=1e-6)


def test_ranks_of_one_training(tmp_path: Path) -> None:
    """They stay ranks; cards that only they know are theirs, the others the command's."""
    ranks = [replace(FIRST, rank=rank, world_size=2, windows=()) for rank in (0, 1)]
    far = replace(ranks[1], host="node2", devices=(GPU1,), stretches=(
        Stretch(phase="train", duration_s=30.0, power_w={"gpu1": 200.0}),
    ))  # fmt: skip
    report = build(folder_of(tmp_path, OUTER, ranks[0], far))
    assert report.energy.total.energy_j == pytest.approx(60_000.0 + 6_000.0)
    assert report.throughput.steps == 300
    assert report.throughput.samples == 2 * 9600
    assert [(row.rank, row.steps) for row in report.ranks] == [(0, 300), (1, 300)]
    assert "rank_missing" not in [warning.code for warning in report.warnings]


def test_one_that_was_killed(tmp_path: Path) -> None:
    """Both ended at once: what was written counts."""
    report = build(
        folder_of(tmp_path, replace(OUTER, cut_off_at_s=40.0), replace(FIRST, cut_off_at_s=20.0))
    )
    assert report.run.status == "cut off"
    assert report.energy.total.energy_j == pytest.approx(24_000.0, rel=0.01)
    seconds = {phase.name: phase.duration_s for phase in report.phases}
    assert seconds == pytest.approx({"train": 15.0, "validation": 5.0, COMMAND: 20.0})


def test_cards_that_nobody_used_are_left_out(tmp_path: Path) -> None:
    """The command sees two; its training names one."""
    watts = {**WATTS, "gpu1": 80.0}
    both = replace(OUTER, devices=(GPU, GPU1, CPU, PROCESS), stretches=(
        Stretch(phase="idle", duration_s=100.0, power_w=watts),
    ))  # fmt: skip
    alone = build(folder_of(tmp_path / "alone", both))
    assert alone.energy.gpu.energy_j == pytest.approx(58_000.0)
    report = build(folder_of(tmp_path / "used", both, FIRST))
    assert report.energy.gpu.energy_j == pytest.approx(50_000.0)
    assert any(
        "gpu1: not included, because no process of the command" in note
        for note in report.method_notes
    )


def test_a_card_of_another_host_is_not_used_here(tmp_path: Path) -> None:
    """Rank 1 trains on ``gpu1`` of node2; that of node1 is idle."""
    both = replace(OUTER, devices=(GPU, replace(GPU1, uuid="GPU-cccc"), CPU, PROCESS), stretches=(
        Stretch(phase="idle", duration_s=100.0, power_w={**WATTS, "gpu1": 80.0}),
    ))  # fmt: skip
    far = replace(
        FIRST, rank=1, world_size=2, host="node2", devices=(GPU1,), windows=(),
        stretches=(Stretch(phase="train", duration_s=30.0, power_w={"gpu1": 200.0}),),
    )  # fmt: skip
    report = build(folder_of(tmp_path, both, replace(FIRST, world_size=2), far))
    assert report.energy.gpu.energy_j == pytest.approx(50_000.0 + 6_000.0)


def test_samples_of_ranks_at_once_are_those_of_the_first_training(tmp_path: Path) -> None:
    """Two ranks of 9600 samples each; those of the later training are left out."""
    later = replace(FIRST, attempt=3, run_id="later", unix_s=BEGAN_S + 25.0)
    trainings = [
        replace(one, rank=rank, world_size=2, windows=())
        for one in (FIRST, later)
        for rank in (0, 1)
    ]
    report = build(folder_of(tmp_path, OUTER, *trainings))
    assert (report.throughput.steps, report.throughput.samples) == (300, 2 * 9600)
    assert [(row.rank, row.steps) for row in report.ranks] == [(0, 300), (1, 300)]
