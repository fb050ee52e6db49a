"""What the benchmarks of whole trainings conclude from given times; they train nothing here."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.benchmarks import no_callback
from tests.benchmarks.overhead_parts import callback_parts, hook_processor_time
from tests.benchmarks.overhead_parts.callback_parts import Comparison, Steps, Turn
from tests.benchmarks.overhead_parts.fit_pairs import (
    BLOCKS,
    Fit,
    Moment,
    Plan,
    Ratio,
    in_turn,
    ratio,
    ratios,
)
from tests.benchmarks.overhead_parts.hook_processor_time import HookProcessorTime
from tests.benchmarks.overhead_parts.training_costs import Costs, measure
from tests.benchmarks.overhead_parts.trainings import Prepare, Ticks, Training

PLAN = Plan(work=1, start=10, block=200)


def costs(half_width: float = 0.001, pairs: int = 40, hooks_us: float | None = 3.0) -> Costs:
    """Return costs with a change of wall time of 1 % in both blocks."""
    change = Ratio(
        median=0.01,
        low=0.01 - half_width,
        high=0.01 + half_width,
        mean=0.01,
        pairs=pairs,
        each=(0.01,) * pairs,
        without_s=1.0,
    )
    return Costs(
        step_s=1.5e-3,
        ratios={f"{block}, wall time": change for block in BLOCKS},
        fit_s=0.5,
        threads={"NVML": 0.004, "journal": 0.002},
        start_threads={"NVML": 0.01},
        hooks_us=hooks_us,
    )


def test_ratio_is_the_median_of_all_pairs() -> None:
    """2 % are found in 40 noisy pairs; a pair of twice the time is kept, and shows in the mean."""
    dice = np.random.default_rng(0)
    without_s = np.exp(dice.normal(0.0, 0.02, 40))
    with_s = 1.02 * np.exp(dice.normal(0.0, 0.02, 40))
    found = ratio(list(with_s), list(without_s))
    assert found.low < 0.02 < found.high
    assert found.pairs == 40
    with_s[0] *= 2.0
    stalled = ratio(list(with_s), list(without_s))
    assert stalled.median == pytest.approx(found.median, abs=0.004)
    assert stalled.mean == pytest.approx(found.mean + np.log(2.0) / 40, abs=0.002)


@dataclass(slots=True)
class Builds:
    """Notes how a training without a framework is built, and the fits of each model."""

    models: list[list[str]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def training(self) -> Training:
        """Return the training."""
        return Training(name="fake", step_s=1e-6, package="x", door="x", build=self._build)

    def _build(self, work: int, steps: int) -> Prepare:
        fits: list[str] = []
        self.models.append(fits)

        def prepare(
            steps: int, ticks: Ticks, callbacks: list[Any], folder: Path
        ) -> Callable[[], object]:
            fits.append("A" if callbacks else "B")
            self.steps.append(steps)

            def train() -> None:
                for _ in range(steps):
                    ticks()

            return train

        return prepare


def test_fits_run_in_order_abba() -> None:
    """Fits with (A) and without a callback (B) alternate, each with all its steps and clocks."""
    builds = Builds()
    pairs = list(in_turn(builds.training(), PLAN, 2, lambda folder: "ours"))
    short = ["A", "B"]
    assert builds.models == [[*short, *"ABBA"]]
    assert builds.steps == [65, 65, *[215] * 4]
    found = ratios(pairs)
    assert [name for name in found if name.endswith("wall time")] == [
        f"{block}, wall time" for block in BLOCKS
    ]
    fits = list(itertools.chain(*pairs))
    assert all(fit.wall_s(0) > 0.0 and fit.wall_s(1) > 0.0 for fit in fits)
    assert all(len(fit.moments) == 4 for fit in fits)


def test_ten_pairs_share_a_model() -> None:
    """25 pairs have three models, so that one with a slow place in memory does not decide."""
    builds = Builds()
    pairs = list(in_turn(builds.training(), PLAN, 25, lambda folder: "ours"))
    assert len(pairs) == 25
    assert [len(fits) for fits in builds.models] == [22, 22, 12]


def test_a_pair_that_is_done_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The costs after the first of two pairs are known before the second begins."""
    monkeypatch.setattr(Training, "callback", lambda training, folder: "ours")
    monkeypatch.setattr(Plan, "of", lambda training, folder: PLAN)
    builds = Builds()
    costs = measure(builds.training(), 2, hook_steps=0)
    first = next(costs)
    assert first.ratios["steady state, wall time"].pairs == 1
    begun = len(builds.models[-1])
    second, last = costs
    assert len(builds.models[-1]) == begun + 2
    assert last == second
    assert second.ratios["steady state, wall time"].pairs == 2


@pytest.mark.parametrize(
    ("half_width", "pairs", "is_judged"),
    [(0.009, 40, True), (0.011, 40, False), (0.009, 39, False)],
)
def test_few_pairs_and_wide_intervals_show_nothing(
    half_width: float, pairs: int, is_judged: bool
) -> None:
    """An interval of more than 1 % to either side is not judged, and the table says so."""
    found = {"Lightning": costs(half_width, pairs)}
    bars = list(no_callback.judged(found))
    assert [bar.is_judged for bar in bars] == [True, is_judged, is_judged]
    assert [bar.value for bar in bars[1:]] == [0.01 + half_width] * 2
    assert ("not shown" in no_callback.table(found)) is not is_judged


def test_processor_time_is_that_of_hooks_and_threads() -> None:
    """3 us of 1.5 ms and 0.6 % of a core are 0.8 %; a training on a GPU has no such bar."""
    (bar, *_) = no_callback.judged({"Keras": costs()})
    assert bar.value == pytest.approx(0.008)
    assert bar.is_met
    assert len(list(no_callback.judged({"GPU-bound": costs(hooks_us=None)}))) == 2


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Replace the clocks of ``hook_processor_time``; the function lets nanoseconds pass."""
    now = [0]

    def spend(ns: int) -> None:
        now[0] += ns

    clocks = SimpleNamespace(thread_time_ns=lambda: now[0], monotonic=lambda: now[0] / 1e9)
    monkeypatch.setattr(hook_processor_time, "time", clocks)
    return spend


def test_hooks_are_counted_without_the_framework_inside(virtual: Callable[[int], None]) -> None:
    """A hook of 5 us that calls the framework for 100 us and the logger for 2 us costs 7 us.

    What follows the last step, such as the report, does not count.
    """
    times = HookProcessorTime()
    framework = times.timed(lambda: virtual(100_000), "fetch", owner="framework")
    logger = times.timed(lambda: virtual(2_000), "log_metrics", owner="logger")

    def hook() -> None:
        virtual(5_000)
        framework()
        logger()

    ours = times.timed(hook, "fetch of ours", begins_step=True)
    for _ in range(4000):
        ours()
        logger()
        framework()
        virtual(1_000_000)
    times.timed(lambda: virtual(10**9), "on_train_end")()
    assert times.us_per_step() == pytest.approx(7.0, rel=0.01)


def test_parts_are_told_apart() -> None:
    """Hooks of 20 us, rows of 500 us and turns of 3 ms are found among steps of 1 ms."""
    steps, turns, now_s, cpu_s = Steps(), [], 0.0, 0.0
    kinds = itertools.cycle(callback_parts.KINDS)
    for number in range(20_000):
        hooks = next(kinds)
        has_row = hooks == "ours" and number % 300 == 0
        us = 1000.0 + {"ours": 20.0, "empty": 7.0, "none": 0.0}[hooks] + 500.0 * has_row
        if number % 800 == 700:
            turns.append(Turn("energy_callbacks journal", now_s + 1e-4, now_s + 2e-4, 1e-3))
            now_s += 3e-3
        now_s, cpu_s = now_s + 1e-6 * us, cpu_s + 1e-6 * us
        steps.end_s.append(now_s)
        steps.cpu_s.append(cpu_s)
        steps.hooks.append(hooks)
        steps.has_row.append(has_row)
    hooks_, empty, row, journal = Comparison(steps, turns).parts()
    assert hooks_.longer_us == pytest.approx(20.0)
    assert empty.longer_us == pytest.approx(7.0)
    assert row.cpu_us == pytest.approx(500.0)
    assert row.per_s == pytest.approx(3 * 1000 / 300, rel=0.1)
    assert journal.longer_us == pytest.approx(3000.0, abs=20.0)
    assert journal.cpu_us == pytest.approx(1000.0)


def test_threads_of_one_name_are_distinguished() -> None:
    """The journal's thread of an earlier fit does not hide that of the present one."""
    edges = [
        {("journal", 2): 0.25, ("journal", 1): 0.5},
        {("journal", 2): 0.75, ("journal", 1): 0.5},
    ]
    moments = [Moment(wall_s=0.0, process_s=0.0, ours_s=one) for one in ({}, *edges, {})]
    assert Fit(moments=tuple(moments)).threads_s(1) == {"journal": 0.5}
