"""Figures per step use enough steps for a small random error, or the report warns."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.accounting.metrics import pooling
from energy_callbacks.accounting.metrics.pooling import REACH_S, TARGET, RecentStepCounts, widened
from energy_callbacks.accounting.metrics.scalars import Scalars
from energy_callbacks.accounting.metrics.step_counts import StepCounts
from energy_callbacks.core.records import Energy, Reading
from energy_callbacks.report import build
from energy_callbacks.testing import FakeClock, ReplaySource, ScriptedSource
from tests.accounting.books import START_S, Books
from tests.fake_nvml import Square
from tests.sensing.loads import channel

LOAD = Square(low_w=100.0, high_w=500.0, period_s=0.73, duty=0.5, phase_s=0.0)
TAG = "efficiency/gpu_j_per_step"


@pytest.fixture
def clock() -> FakeClock:
    """Virtual time."""
    return FakeClock(start_s=START_S)


def swinging(clock: FakeClock, interval_s: float = 0.1) -> ScriptedSource:
    """A sensor that is too slow for its load."""
    return ScriptedSource(clock, power_w=LOAD.power_w, interval_s=interval_s)


def train(books: Books, seconds: float, step_s: float = 0.25) -> list[tuple[float, Scalars]]:
    """Steps with a row every second; returns each row with the time of its newest step."""
    rows = []
    for number in range(round(seconds / step_s)):
        books.clock.advance(step_s)
        books.step(samples=16, tokens=160)
        if (number + 1) % round(1.0 / step_s) == 0 and (row := books.board.take()):
            rows.append((books.recorder.steps.tally.t_s, row))
    return rows


def random_share(row: Scalars) -> float:
    """Random share of a row; the sensor has no systematic error."""
    return (row[f"{TAG}_hi"] - row[f"{TAG}_lo"]) / 2.0 / row[TAG]


def tallies(count: int, apart_s: float = 1.0) -> list[StepCounts]:
    """Tallies at equal distances."""
    return [StepCounts(t_s=number * apart_s, steps=number) for number in range(1, count + 1)]


def test_steps_are_pooled_until_they_are_sure_enough(tmp_path: Path, clock: FakeClock) -> None:
    """The first rows are uncertain; with enough steps every row meets the target."""
    books = Books(tmp_path, swinging(clock), clock=clock)
    books.enter("train")
    rows = train(books, 40.0)
    shares = [random_share(row) for _, row in rows]
    assert shares[0] > 2.0 * TARGET
    assert max(shares[15:]) <= TARGET + 1e-9
    # and no further back than needed: the aim is not missed by far
    assert max(shares[15:]) > TARGET / 3.0


def test_the_truth_is_in_the_pooled_interval(tmp_path: Path, clock: FakeClock) -> None:
    """300 W and four steps per second are 75 J per step, inside nine of ten intervals."""
    books = Books(tmp_path, swinging(clock), clock=clock)
    books.enter("train")
    rows = [row for _, row in train(books, 60.0)][10:]
    inside = [row[f"{TAG}_lo"] <= 300.0 / 4.0 <= row[f"{TAG}_hi"] for row in rows]
    assert sum(inside) >= 0.9 * len(inside)


def test_power_and_speed_stay_on_the_newest_span(tmp_path: Path, clock: FakeClock) -> None:
    """When steps become twice as long, the throughput changes at once."""
    books = Books(tmp_path, swinging(clock), clock=clock)
    books.enter("train")
    train(books, 30.0)
    newest = [row for _, row in train(books, 6.0, step_s=0.5)][-1]
    assert newest["throughput/samples_per_s"] == pytest.approx(32.0)
    assert newest[TAG] < 0.95 * 150.0  # shorter steps are still in it
    assert newest["efficiency/gpu_j_per_sample"] == pytest.approx(newest[TAG] / 16.0)
    assert newest["efficiency/gpu_j_per_token"] == pytest.approx(newest[TAG] / 160.0)


def test_a_span_that_is_sure_is_not_pooled(tmp_path: Path, clock: FakeClock) -> None:
    """After a change of power, rows of an exact sensor do not include the time before."""
    half_s = START_S + 20.0
    source = ScriptedSource(
        clock, power_w=lambda t: 100.0 if t < half_s else 300.0, interval_s=0.01
    )
    books = Books(tmp_path, source, clock=clock)
    books.enter("train")
    train(books, 21.5)
    assert train(books, 5.0)[-1][1][TAG] == pytest.approx(300.0 / 4.0, rel=1e-3)


def test_pooling_does_not_cross_another_phase(tmp_path: Path, clock: FakeClock) -> None:
    """Steps of a batch-size search are not added to the training around it."""
    books = Books(tmp_path, swinging(clock), clock=clock)
    books.enter("train")
    train(books, 20.0)
    books.enter("tuning")
    train(books, 10.0, step_s=0.05)
    books.leave("tuning")
    rows = [row for _, row in train(books, 15.0)][2:]
    assert all(row[f"{TAG}_lo"] <= 75.0 <= row[f"{TAG}_hi"] for row in rows)
    assert random_share(rows[0]) > random_share(rows[-1])


def test_rows_of_another_phase_are_not_counted(tmp_path: Path, clock: FakeClock) -> None:
    """A batch-size search has no joules per step, so its rows are not counted."""
    books = Books(tmp_path, swinging(clock), clock=clock)
    books.enter("tuning")
    assert not any(TAG in row for _, row in train(books, 10.0))
    assert books.board.short_span() is None
    books.leave("tuning")
    books.enter("train")
    train(books, 4.0)
    assert books.board.short_span() is not None


def test_the_systematic_bound_does_not_widen_a_span(tmp_path: Path, clock: FakeClock) -> None:
    """A systematic error of 20 % does not shrink with time: the newest second is used."""
    of = channel("power", "mean", period_s=0.1, relative_error=0.2)
    watts = [100.0] * 200 + [300.0] * 200
    readings = [Reading(of, START_S + 0.1 * i, power_w) for i, power_w in enumerate(watts)]
    books = Books(tmp_path, ReplaySource(clock, [of], readings, interval_s=0.1), clock=clock)
    books.enter("train")
    row = train(books, 30.0)[-1][1]
    assert row[TAG] == pytest.approx(300.0 / 4.0, rel=1e-3)
    assert row[f"{TAG}_hi"] > 1.2 * row[TAG]


@pytest.mark.parametrize("interval_s", [0.1, 1.0])
def test_the_report_hears_only_of_what_stays_unsure(
    tmp_path: Path, clock: FakeClock, interval_s: float
) -> None:
    """A sensor with one value per second is too slow for this run; a fast one is not."""
    books = Books(tmp_path, swinging(clock, interval_s), clock=clock)
    books.enter("train")
    rows = train(books, 30.0)
    found = books.board.short_span()
    assert (found is None) == (interval_s == 0.1)
    if found is not None:
        told = int(found[0].split("median of ")[1].split()[0])
        assert 1 < told <= len(rows)
        assert "log less often or train longer" in found[1]


def test_a_row_of_old_news_is_not_counted(tmp_path: Path, clock: FakeClock) -> None:
    """Without a new step the same row is not counted again."""
    books = Books(tmp_path, swinging(clock, 1.0), clock=clock)
    clock.advance(5.0)
    books.board.take()
    assert books.board.short_span() is None
    books.enter("train")
    train(books, 3.0)
    clock.advance(2.0)
    for _ in range(5):
        books.board.take()
        clock.advance(1.0)
    found = books.board.short_span()
    assert found is not None
    rows = int(found[0].split("median of ")[1].split()[0])
    assert rows <= 4  # three while it trained, one for what was seen afterwards


def edges(noise_j: float, power_w: float, now: StepCounts) -> Callable[[StepCounts], float]:
    """Random share of a span with errors at its ends only."""
    return lambda start: noise_j / (power_w * (now.t_s - start.t_s))


def test_few_questions_find_the_span() -> None:
    """Two ends of 30 J at 100 W need six seconds for 5 %: found with the second query."""
    *earlier, before, now = tallies(60)
    asked: list[StepCounts] = []
    share = edges(30.0, 100.0, now)

    def ask(start: StepCounts) -> float:
        asked.append(start)
        return share(start)

    start, reached = widened(before, now, earlier, ask)
    assert now.t_s - start.t_s == pytest.approx(6.0)
    assert reached == pytest.approx(0.05)
    assert len(asked) == 2


def test_where_no_span_is_long_enough_it_is_the_longest() -> None:
    """The span begins at the oldest tally, after a limited number of queries."""
    *earlier, before, now = tallies(60)
    assert widened(before, now, earlier, lambda _: 0.2)[0] == earlier[0]
    assert widened(before, now, [], lambda _: 0.2) == (before, 0.2)


def test_a_pooled_span_begins_where_as_much_is_known() -> None:
    """A tally with unknown samples would make the samples of the span unknown."""
    recent = RecentStepCounts()
    untold = StepCounts(t_s=1.0, steps=1, samples=None, tokens=1.0)
    known = StepCounts(t_s=2.0, steps=2, samples=2.0, tokens=2.0)
    before = StepCounts(t_s=3.0, steps=3, samples=3.0, tokens=3.0)
    for tally in (untold, known, known, before):
        recent.add(tally)
    assert recent.between(0.0, before) == [known]
    assert recent.between(2.5, before) == []
    silent = StepCounts(t_s=3.0, steps=3, samples=None, tokens=3.0)
    assert recent.between(0.0, silent) == [untold, known]


def test_the_ends_of_steps_are_in_the_random_error() -> None:
    """At 200 W, 30 and 40 ms add 6 and 8 J to 24 J: 26 J; undated ends add 0."""
    energy = Energy(energy_j=1000.0, stderr_j=24.0, systematic_j=7.0, coverage=1.0)
    ends = (StepCounts(t_s=0.0, t_error_s=0.03), StepCounts(t_s=5.0, t_error_s=0.04))
    found = pooling.with_ends(energy, 5.0, ends)
    assert found.stderr_j == pytest.approx(26.0)
    assert (found.energy_j, found.systematic_j) == (1000.0, 7.0)
    half_seen = Energy(energy_j=500.0, stderr_j=24.0, coverage=0.5)
    assert pooling.with_ends(half_seen, 5.0, ends).stderr_j == pytest.approx(26.0)
    host_marks = (StepCounts(t_s=0.0), StepCounts(t_s=5.0))
    assert pooling.with_ends(energy, 5.0, host_marks) == energy
    assert pooling.with_ends(Energy(energy_j=None), 5.0, ends) == Energy(energy_j=None)


def test_a_dated_step_widens_the_interval(tmp_path: Path, clock: FakeClock) -> None:
    """At 200 W, ends with an error of 50 ms add 10 J each: 1.96 * 14.1 J together."""
    source = ScriptedSource(clock, power_w=lambda _: 200.0)
    books = Books(tmp_path, source, clock=clock)
    now, before = (
        StepCounts(t_s=START_S + t, t_error_s=0.05, steps=n) for t, n in ((9, 8), (1, 4))
    )
    books.enter("train")
    clock.advance(10.0)
    row = books.board._efficiency(before, now)
    half_j = (row[f"{TAG}_hi"] - row[f"{TAG}_lo"]) / 2.0 * 4
    assert half_j == pytest.approx(1.96 * math.hypot(10.0, 10.0), rel=0.01)


def test_edges_are_in_the_interval_that_is_logged(tmp_path: Path, clock: FakeClock) -> None:
    """10 s of 200 W with 30 J from edges: 2000 +- 30 J over four steps."""
    books = Books(tmp_path, ScriptedSource(clock, power_w=lambda _: 200.0), clock=clock)
    now, before = (StepCounts(t_s=START_S + t, steps=n) for t, n in ((9, 8), (1, 4)))
    books.enter("train")
    clock.advance(10.0)
    key = books.board._timeline.keys("gpu")[0]
    found = Energy(energy_j=2000.0, edge_j=30.0, method="power", coverage=1.0)
    books.board._energies[(key, before.t_s, now.t_s)] = found
    row = books.board._efficiency(before, now)
    assert row[f"{TAG}_hi"] == pytest.approx(2030.0 / 4)
    assert row[f"{TAG}_lo"] == pytest.approx(1970.0 / 4)


def test_neighbours_in_training_are_asked_for_at_once(tmp_path: Path, clock: FakeClock) -> None:
    """Two spans of training without a pause are one span, with two edges."""
    books = Books(tmp_path, ScriptedSource(clock, power_w=lambda _: 200.0), clock=clock)
    books.enter("train")
    clock.advance(3.0)
    books.enter("train")
    clock.advance(3.0)
    books.enter("validation")
    clock.advance(1.0)
    books.leave("validation")
    clock.advance(2.0)
    spans = books.recorder.trained(START_S, START_S + 9.0)
    assert [(one.start_s - START_S, one.end_s - START_S) for one in spans] == [
        (pytest.approx(0.0), pytest.approx(6.0)),
        (pytest.approx(7.0), pytest.approx(9.0)),
    ]


def test_the_share_is_that_of_the_worst_scope() -> None:
    """Noise and edges count, systematic errors do not; unknown energies are ignored."""
    sure = Energy(energy_j=100.0, stderr_j=1.0, systematic_j=50.0)
    unsure = Energy(energy_j=100.0, stderr_j=10.0)
    assert pooling.random_share([sure, unsure]) == pytest.approx(0.196)
    edges = Energy(energy_j=100.0, stderr_j=30.0 / 1.96, edge_j=40.0)
    assert pooling.random_share([sure, edges]) == pytest.approx(0.5)
    assert pooling.random_share([sure, Energy(energy_j=None)]) == pytest.approx(0.0196)
    assert pooling.random_share([Energy(energy_j=None), Energy(energy_j=0.0)]) == 0.0


def test_the_notice_says_what_was_reached_and_what_would_help() -> None:
    """20 % over 6 s needs four times the span; a single uncertain row is ignored."""
    found = pooling.short_span([(0.2, 6.0), (0.1, 8.0), (0.9, 1.0)])
    assert found is not None
    assert "random error of 20 % (median of 3 rows, each over 6.0 s of steps)" in found[0]
    assert "the target is 5 %" in found[0]
    assert "about 24 s of steps" in found[1]
    assert pooling.short_span([(0.04, 6.0), (0.04, 8.0), (0.9, 1.0)]) is None
    assert pooling.short_span([]) is None
    assert REACH_S == 60.0


@pytest.mark.parametrize("rank", [0, 1])
def test_the_report_of_a_run_has_the_notice_once(
    tmp_path: Path, clock: FakeClock, rank: int
) -> None:
    """With one value and one row per second, the first process warns, with advice."""
    config = EnergyConfig(report_dir=tmp_path)
    meter = EnergyMeter(config=config, sources=[swinging(clock, 1.0)], clock=clock)
    meter._start(process=TrainingProcess(rank=rank))
    with meter.phase("train"):
        for _ in range(20):
            clock.advance(1.0)
            meter.step(samples=16)
            meter.log(step=1)
    meter.stop()
    notices = [one for one in build(tmp_path).warnings if one.code == "short_span"]
    assert len(notices) == (1 if rank == 0 else 0)
    assert all(re.search(r"about \d+ s of steps per row", one.fix) for one in notices)
