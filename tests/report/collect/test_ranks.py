"""Ranks of an attempt: work of each, imbalances, and ranks that are missing or died."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from energy_callbacks.accounting.journal import journal
from energy_callbacks.report.build import build
from energy_callbacks.report.collect.process import ProcessJournal
from energy_callbacks.report.collect.ranks import data_wait
from energy_callbacks.report.model.schema import EnergyReport, from_json, to_json
from energy_callbacks.report.render.html import render as render_html
from energy_callbacks.report.render.text import render
from tests.report.journals import CPU, GPU, GPU1, PROCESS, Attempt, Stretch, write

TRAIN_S = 60.0


def stretch(**power_w: float) -> tuple[Stretch, ...]:
    """A minute of training at constant powers."""
    return (Stretch(phase="train", duration_s=TRAIN_S, power_w=power_w),)


# As frameworks do: the first rank of the host reads all its cards, and CPU and RAM.
FIRST = Attempt(
    world_size=2,
    devices=(GPU, GPU1, CPU, PROCESS),
    stretches=stretch(gpu0=500.0, gpu1=500.0, cpu0=100.0),
)
SECOND = replace(FIRST, rank=1, devices=(GPU1, PROCESS), stretches=stretch(gpu1=500.0))


def report_of(folder: Path, *attempts: Attempt) -> EnergyReport:
    """The report of some journals."""
    for attempt in attempts:
        write(folder, attempt)
    return build(folder)


def standing_out(report: EnergyReport) -> list[tuple[str, int]]:
    """Which rank stands out in what."""
    return [(one.quantity, one.rank) for one in report.imbalances]


def test_one_rank_has_no_table(report: EnergyReport) -> None:
    """Nothing about ranks where there is but one."""
    assert (report.ranks, report.imbalances) == ((), ())
    assert "\nRanks\n" not in render(report)
    assert "Ranks in training" not in render_html(report)


def test_each_rank_has_its_own_cards_work_and_joules(tmp_path: Path) -> None:
    """The card that the first rank reads for the second is the second's: 500 W x 60 s each."""
    report = report_of(tmp_path, FIRST, SECOND)
    assert [(r.rank, r.host, r.gpus, r.shares_gpus) for r in report.ranks] == [
        (0, "node1", ("gpu0",), False),
        (1, "node1", ("gpu1",), False),
    ]
    for rank in report.ranks:
        assert (rank.steps, rank.samples) == (600, 19200)
        assert (rank.train_s, rank.data_wait_s) == (TRAIN_S, pytest.approx(6.0))
        assert rank.gpu.energy_j == pytest.approx(30_000.0)
        assert rank.gpu_power_w == pytest.approx(500.0)
    assert report.imbalances == ()
    assert report.energy.gpu.energy_j == pytest.approx(60_000.0)
    assert from_json(to_json(report)) == report
    for text in (render(report), render_html(report)):
        assert "19 200" in text
        assert "500 W" in text


def test_a_card_that_ranks_share_is_said_to_be_shared(tmp_path: Path) -> None:
    """Both read gpu0: each row has its joules, the total counts them once, no power is compared."""
    shared = replace(FIRST, devices=(GPU, CPU, PROCESS), stretches=stretch(gpu0=500.0, cpu0=100.0))
    other = replace(shared, rank=1, devices=(GPU,), stretches=stretch(gpu0=500.0))
    report = report_of(tmp_path, shared, other)
    assert [(r.gpus, r.shares_gpus) for r in report.ranks] == [(("gpu0",), True)] * 2
    assert report.energy.gpu.energy_j == pytest.approx(30_000.0)
    assert "gpu0 (shared)" in render(report)


def test_the_rank_that_waits_for_data_is_named(tmp_path: Path) -> None:
    """30 ms a step against 10 ms: 18 s against 6 s of a minute."""
    report = report_of(tmp_path, FIRST, replace(SECOND, wait_s=0.03))
    assert standing_out(report) == [("data_wait", 1)]
    (found,) = report.imbalances
    assert (found.value, found.median) == (pytest.approx(18.0), pytest.approx(6.0))
    said = (
        "Rank 1 (attempt 1, host node1) waited 18.0 s for data (30.0 % of its training time); the"
    )
    for text in (" ".join(render(report).split()), render_html(report)):
        assert said in text


def test_waits_are_compared_over_the_steps_that_all_have_done(tmp_path: Path) -> None:
    """The other rank died half-way: 9 s in 30 s, not in the minute that this one trained."""
    report = report_of(tmp_path, replace(FIRST, wait_s=0.03), replace(SECOND, cut_off_at_s=30.0))
    (found,) = report.imbalances
    assert (found.rank, found.value, found.median) == (0, pytest.approx(9.0), pytest.approx(3.0))
    assert "30.0 % of its training" in found.message


def test_a_difference_that_changes_nothing_is_not_told(tmp_path: Path) -> None:
    """0.9 % of the training more waiting, however sure it is."""
    report = report_of(tmp_path, FIRST, replace(SECOND, wait_s=0.01 + 0.0009))
    assert report.imbalances == ()


def test_unequal_samples_are_named(tmp_path: Path) -> None:
    """32 samples a step on one rank, 24 on the other."""
    report = report_of(tmp_path, FIRST, replace(SECOND, samples_per_step=24))
    assert {quantity for quantity, _ in standing_out(report)} == {"samples_per_step"}


def test_ranks_without_samples_do_not_differ(tmp_path: Path) -> None:
    """0 samples per step on each of them."""
    none = (replace(one, samples_per_step=0) for one in (FIRST, SECOND))
    assert not standing_out(report_of(tmp_path, *none))


@pytest.mark.parametrize(("power_w", "stands_out"), [(400.0, [("gpu_power", 0)]), (493.0, [])])
def test_unequal_power_is_named_beyond_the_errors_of_both(
    tmp_path: Path, power_w: float, stands_out: list[tuple[str, int]]
) -> None:
    """1 % of systematic error each: 400 W is another power than 500 W, 493 W is not."""
    second = replace(SECOND, stretches=stretch(gpu1=power_w))
    first = replace(FIRST, stretches=stretch(gpu0=500.0, gpu1=power_w, cpu0=100.0))
    assert standing_out(report_of(tmp_path, first, second)) == stands_out


def with_waits(waits_s: Sequence[Sequence[float]]) -> list[ProcessJournal]:
    """Ranks whose lines, of ten steps each, have these waits."""
    return [
        ProcessJournal(
            path=Path(),
            header={},
            steps=[{"steps": 10, "data_wait_s": float(wait_s)} for wait_s in rank],
        )
        for rank in waits_s
    ]


def test_waits_that_differ_by_chance_name_nobody() -> None:
    """Four ranks of the same waits, 400 times: a wrong word in 5 % of them at most."""
    generator = np.random.default_rng(0)
    alarms = sum(
        data_wait(with_waits(generator.exponential(0.1, (4, 100)))) is not None for _ in range(400)
    )
    assert alarms <= 20


def test_a_slow_rank_is_found_through_the_noise() -> None:
    """Waits half as long again on one of four ranks, 100 times: found in nine of ten."""
    generator = np.random.default_rng(1)
    factors = np.array([[1.0], [1.0], [1.5], [1.0]])
    found = [
        data_wait(with_waits(factors * generator.exponential(0.1, (4, 400)))) for _ in range(100)
    ]
    assert sum(gap is not None and gap.place == 2 for gap in found) >= 90


def test_a_few_seconds_of_training_name_nobody() -> None:
    """Seven lines tell nothing of how waits vary."""
    assert data_wait(with_waits([[0.1] * 7, [0.9] * 7])) is None
    assert data_wait(with_waits([[0.1] * 8, [0.9] * 8])) is not None


def test_a_rank_that_died_is_named(tmp_path: Path) -> None:
    """Its journal counts as far as it goes, and the rank says when it fell silent."""
    report = report_of(tmp_path, FIRST, replace(SECOND, cut_off_at_s=30.0))
    assert [one.status for one in report.attempts] == ["finished", "cut off"]
    (said,) = (one.message for one in report.warnings if one.code == "cut_off")
    assert said == (
        "Rank 1 of 2 (attempt 1, host node1) stopped unexpectedly after 30.0 s. Up to one second "
        "of data before that may be missing."
    )
    assert [rank.steps for rank in report.ranks] == [600, 300]
    assert report.energy.gpu.energy_j == pytest.approx(60_000.0)


def test_cards_of_a_rank_that_died_are_told_by_one_that_went_on(tmp_path: Path) -> None:
    """The first dies after 10 s and the second trains for a minute: gpu1 has its 30 kJ."""
    first = replace(FIRST, cut_off_at_s=10.0)
    report = report_of(tmp_path, first, SECOND)
    by_key = {device.key: device.energy.energy_j for device in report.devices}
    assert by_key["gpu0"] == pytest.approx(5_000.0)
    assert by_key["gpu1"] == pytest.approx(30_000.0)
    assert report.run.duration_s == TRAIN_S
    assert report.throughput.steps == 600


def test_ranks_that_die_together_leave_the_first_its_cards(tmp_path: Path) -> None:
    """A second between two last lines is no reason to change who speaks for a card."""
    first, second = (replace(one, cut_off_at_s=end) for one, end in ((FIRST, 30.0), (SECOND, 31.0)))
    report = report_of(tmp_path, first, second)
    assert report.attempts[1].energy.energy_j is None
    assert report.energy.gpu.energy_j == pytest.approx(30_000.0)


def test_a_rank_without_a_journal_is_missed(tmp_path: Path) -> None:
    """Hosts that share no folder: the report says which ranks it knows nothing of."""
    report = report_of(tmp_path, *(replace(one, world_size=6) for one in (FIRST, SECOND)))
    (missed,) = (one for one in report.warnings if one.code == "rank_missing")
    assert missed.message.startswith("Ranks 2-5 of 6: the journal of attempt 1 is missing")


def test_a_dead_rank_that_nobody_has_reaped_is_cut_off(tmp_path: Path) -> None:
    """A zombie still has its number, and a journal whose last line may be a moment old."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    path = journal.path_for(tmp_path, 1, os.uname().nodename, 0)
    writer = journal.JournalWriter(path)
    header = {"run_id": "a", "attempt": 1, "host": os.uname().nodename, "rank": 0}
    writer.write(
        {"type": "header", "format": journal.FORMAT, "version": journal.VERSION}
        | header
        | {"unix_s": time.time(), "pid": child.pid}
    )
    writer.close()
    report = build(tmp_path)
    child.wait()
    assert report.run.status == "cut off"


def test_hosts_that_share_no_folder_are_one_run(tmp_path: Path) -> None:
    """Copied together, journals of one launch are one attempt, whatever run each host named."""
    first = replace(FIRST, launch="2 node1 29500", attempt=2)
    other = replace(
        FIRST, launch="2 node1 29500", run_id="run-b", host="node2", rank=1, unix_s=first.unix_s + 9
    )
    long_ago = replace(other, run_id="run-c", attempt=3, unix_s=first.unix_s - 3600.0)
    before = replace(FIRST, unix_s=first.unix_s - 600.0)
    report = report_of(tmp_path, before, first, other, long_ago)
    assert [(one.attempt, one.host, one.rank) for one in report.attempts] == [
        (1, "node1", 0),
        (2, "node1", 0),
        (2, "node2", 1),
    ]
    assert report.run.run_id == "run-a"
    assert report.energy.gpu.energy_j == pytest.approx(6 * 30_000.0)
    codes = [one.code for one in report.warnings]
    assert codes.count("rank_missing") == 1  # of the first attempt
    assert codes.count("other_runs") == 1


def test_ranks_of_one_host_that_name_two_runs_are_two_runs(tmp_path: Path) -> None:
    """A port that served an earlier training says nothing."""
    first = replace(FIRST, launch="2 node1 29500", run_id="run-z", unix_s=FIRST.unix_s - 60.0)
    second = replace(FIRST, launch="2 node1 29500", attempt=2)
    report = report_of(tmp_path, first, second)
    assert [one.attempt for one in report.attempts] == [2]
