"""Splits the energy of a step into phases with a sensor slower than the phases, if truth is known.

A minute of training steps of four phases (waiting, forward, backward, optimizer). Power and share
of the step are drawn for each trial around 120, 350, 520 and 250 W and 17, 25, 50 and 8 %; each
phase of each step differs from its mean by 3 % at random. The sensor has a first-order response of
15 ms and a delay of 2 to 8 ms (drawn; assumed to be 5 ms). It reads every 20 ms by a clock up to
50 ppm from the host's, in whole watts with a random error of up to 8 W.

Other forms (``common/step_plants.py``): power that changes within a phase by up to 30 %, edges that
are reported 1 to 5 ms too early or too late, noise of 15 % that lasts 0.1 to 3 s, and all of them.
Bar: the interval holds the truth in at least 90 % of answers. Shuffled names of phases: refused in
at least 95 %. How often other forms are answered has no bar.

Bars: it answers at 120 and 400 ms, and at 23 ms with jitter, in at least 95 % of trials; there the
mean error over phases is at most 5 %, and the stated 95 % interval holds the truth in at least 90 %
of trials with a median half-width of at most four times the median error; at 60 ms, three periods
of the sensor, without jitter it refuses in at least 95 %. Two simple methods are shown as well:
each sample counts for the phase in which it was taken, and energy is split by time.

``python -m tests.benchmarks.phases [--quick] [--json FILE]``: 60 trials a cell, quick eight.
"""

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np

from energy_callbacks.profiling.phases.exposure import Spans
from energy_callbacks.profiling.phases.fit import Readings
from energy_callbacks.profiling.phases.marks import merged
from energy_callbacks.profiling.phases.split import Refusal, split
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.common.step_plants import (
    DURATION_S,
    LAG_OFF_S,
    LAG_S,
    READING_W,
    RESPONSE_S,
    SENSOR_S,
    UNEVEN,
    Load,
    Trial,
)
from tests.benchmarks.common.step_plants import trial as other_trial

NAMES: Final = ("data wait", "forward", "backward", "optimizer")
POWER_W: Final = (120.0, 350.0, 520.0, 250.0)
SHARES: Final = (0.17, 0.25, 0.50, 0.08)
PERIODS_S: Final = (0.023, 0.060, 0.120, 0.400)
JITTERS: Final = (0.0, 0.05)
DRIFT: Final = 5e-5
# Lengths and powers on which no constant of the fit was chosen.
_FORM: Final = Load(power_w=(480.0, 610.0, 150.0), shares=(0.36, 0.50, 0.14))
OTHER_NAMES: Final[tuple[str, ...]] = ("forward", "backward", "optimizer")
FORMS: Final = {
    "ramps": replace(_FORM, ramp=0.3),
    "edges": replace(_FORM, off_s=(0.001, 0.005)),
    "noise": replace(_FORM, noise=0.15),
    "sensor noise": replace(_FORM, noise=0.15, is_sensor_noise=True),
    "all": replace(_FORM, ramp=0.3, off_s=(0.001, 0.005), noise=0.15),
}
FORM_PERIODS_S: Final = (0.150, 0.330)
SHUFFLED_TRIALS, QUICK_SHUFFLED_TRIALS = 120, 20
MUST_ANSWER: Final = {(0.023, 0.05), (0.120, 0.0), (0.120, 0.05), (0.400, 0.0), (0.400, 0.05)}
MUST_REFUSE: Final = {(0.060, 0.0)}
MOST_ERROR: Final = 0.05
LEAST_HELD: Final = 0.90
WIDEST: Final = 4.0
MOSTLY: Final = 0.95
TRIALS, QUICK_TRIALS = 60, 8


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Trials of one kind; figures are those of answered trials, ``None`` if there are none.

    Attributes:
        error: mean over trials and phases, as a share of the phase's energy.
        held: share of stated intervals, of all trials and phases, that hold the truth.
        width: median half-width over the median error, mean over phases.
        by_label: mean error if each sample counts for the phase in which it was taken.
        by_time: mean error if energy is split by time.
    """

    period_s: float
    jitter: float
    trials: int
    answered: float
    error: float | None
    held: float | None
    width: float | None
    by_label: float
    by_time: float


def trial(period_s: float, jitter: float, rng: np.random.Generator) -> Trial:
    """Draw one trial."""
    shares = np.array(SHARES) * rng.uniform(0.8, 1.2, 4)
    shares /= shares.sum()
    power_w = np.array(POWER_W) * rng.uniform(0.8, 1.2, 4)
    steps = math.ceil(DURATION_S / period_s)
    stretch = 1.0 + jitter * rng.standard_normal((steps, 4)) * math.sqrt(4.0) / 2.0
    widths_s = (period_s * shares * np.maximum(stretch, 0.2)).ravel()
    powers_w = (power_w * (1.0 + UNEVEN * rng.standard_normal((steps, 4)))).ravel()
    edges_s = rng.uniform(0.0, SENSOR_S) + np.concatenate(([0.0], np.cumsum(widths_s)))
    labels = np.tile(np.arange(4), steps)
    spacing_s = SENSOR_S * (1.0 + rng.uniform(-DRIFT, DRIFT))
    t_s = np.arange(math.ceil(edges_s[0] / spacing_s), edges_s[-1] / spacing_s) * spacing_s
    seen_w = _filtered(edges_s, powers_w, t_s - LAG_S - rng.uniform(-LAG_OFF_S, LAG_OFF_S))
    seen_w = np.round(seen_w + rng.uniform(-READING_W, READING_W, len(t_s)))
    truth_j = (widths_s * powers_w).reshape(steps, 4).sum(axis=0)
    return Trial(
        spans=Spans(edges_s=edges_s, labels=labels, count=4),
        readings=Readings(t_s=t_s, power_w=seen_w, lag_s=LAG_S, response_s=RESPONSE_S),
        steps=steps,
        truth_j=truth_j,
    )


def _filtered(edges_s: np.ndarray, powers_w: np.ndarray, t_s: np.ndarray) -> np.ndarray:
    """Return the power after the sensor's response, by steps, unlike the estimator computes it."""
    seen = np.empty(len(t_s))
    state_w, at = powers_w[0], 0
    for number, moment_s in enumerate(t_s):
        while at + 1 < len(powers_w) and edges_s[at + 1] <= moment_s:
            kept = math.exp(-(edges_s[at + 1] - edges_s[at]) / RESPONSE_S)
            state_w = powers_w[at] + (state_w - powers_w[at]) * kept
            at += 1
        kept = math.exp(-max(moment_s - edges_s[at], 0.0) / RESPONSE_S)
        seen[number] = powers_w[at] + (state_w - powers_w[at]) * kept
    return seen


def by_label(one: Trial) -> np.ndarray:
    """Return the energy of each phase if a sample counts for the phase in which it was taken."""
    at = np.searchsorted(one.spans.edges_s, one.readings.t_s, "right") - 1
    at = np.clip(at, 0, len(one.spans.labels) - 1)
    label = one.spans.labels[at]
    return np.bincount(label, one.readings.power_w * SENSOR_S, 4)


def by_time(one: Trial) -> np.ndarray:
    """Return the energy of each phase if all have the same power."""
    times_s = one.spans.times_s()
    energy_j: np.ndarray = one.readings.power_w.mean() * times_s
    return energy_j


def cell(period_s: float, jitter: float, trials: int, seed: int) -> Cell:
    """Run many trials of one kind."""
    rng = np.random.default_rng(seed)
    errors, widths, labels, times = [], [], [], []
    for _ in range(trials):
        one = trial(period_s, jitter, rng)
        labels.append(np.abs(by_label(one) / one.truth_j - 1.0))
        times.append(np.abs(by_time(one) / one.truth_j - 1.0))
        found = split(one.spans, one.readings, NAMES, one.steps)
        if isinstance(found, Refusal):
            continue
        times_s = one.spans.times_s()
        errors.append(np.abs(found.power_w * times_s / one.truth_j - 1.0))
        widths.append(found.error_w * times_s / one.truth_j)
    error, width = np.array(errors), np.array(widths)
    return Cell(
        period_s=period_s,
        jitter=jitter,
        trials=trials,
        answered=len(errors) / trials,
        error=float(error.mean()) if errors else None,
        held=float((error <= width).mean()) if errors else None,
        width=float((np.median(width, axis=0) / np.median(error, axis=0)).mean())
        if errors
        else None,
        by_label=float(np.mean(labels)),
        by_time=float(np.mean(times)),
    )


@dataclass(frozen=True, kw_only=True)
class FormCell:
    """Trials of a load of another form; ``held`` is ``None`` if there are no answers."""

    form: str
    trials: int
    answered: float
    held: float | None
    error: float | None


def form_cell(form: str, trials: int, seed: int) -> FormCell:
    """Run trials of a form in all periods; a small phase without an answer is merged."""
    rng = np.random.default_rng([77, seed])
    errors, widths, answered = [], [], 0
    for number in range(trials):
        one = other_trial(FORMS[form], FORM_PERIODS_S[number % 2], 0.05 * (number // 2 % 2), rng)
        group_of, names = np.arange(3), OTHER_NAMES
        found = split(one.spans, one.readings, names, one.steps)
        if isinstance(found, Refusal) and found.phase == 2:
            group_of, names = merged(group_of, names, 2)
            found = split(one.spans, one.readings, names, one.steps, group_of)
        if not isinstance(found, Refusal):
            times_s, truth_j = (
                np.bincount(group_of, values) for values in (one.spans.times_s(), one.truth_j)
            )
            answered += 1
            errors += (np.abs(found.power_w * times_s / truth_j - 1.0)).tolist()
            widths += (found.error_w * times_s / truth_j).tolist()
    return FormCell(
        form=form,
        trials=trials,
        answered=answered / trials,
        held=float(np.mean(np.array(errors) <= np.array(widths))) if errors else None,
        error=float(np.mean(errors)) if errors else None,
    )


def shuffled(trials: int, seed: int) -> float:
    """Return the share of trials with shuffled names of phases that are refused."""
    rng = np.random.default_rng([78, seed])
    refused = 0
    for number in range(trials):
        one = trial(PERIODS_S[number % 4], 0.05, rng)
        spans = replace(one.spans, labels=rng.permutation(one.spans.labels))
        refused += isinstance(split(spans, one.readings, NAMES, one.steps), Refusal)
    return refused / trials


def judged(one: Cell) -> Iterator[Bar]:
    """Return the bars of a cell; a figure without any answer meets none."""
    name = f"{1e3 * one.period_s:.0f} ms, jitter {one.jitter:.0%}"
    kind = (one.period_s, one.jitter)
    if kind in MUST_REFUSE:
        yield Bar(name=f"{name}: refused", value=1.0 - one.answered, at_least=MOSTLY)
    if kind not in MUST_ANSWER:
        return
    error, held, width = (
        math.nan if value is None else value for value in (one.error, one.held, one.width)
    )
    yield Bar(name=f"{name}: answered", value=one.answered, at_least=MOSTLY)
    yield Bar(name=f"{name}: mean error", value=error, at_most=MOST_ERROR)
    yield Bar(name=f"{name}: share held", value=held, at_least=LEAST_HELD)
    yield Bar(name=f"{name}: width in errors", value=width, at_most=WIDEST)


def print_table(cells: Sequence[Cell]) -> None:
    """Print a row for each cell."""
    print("step     jitter  answered   error  truth held  width/error   by label  by time")
    for one in cells:
        figures = "      -           -            -"
        if one.error is not None and one.held is not None and one.width is not None:
            figures = f"{one.error:7.1%}  {one.held:10.1%}  {one.width:11.1f}"
        print(
            f"{1e3 * one.period_s:3.0f} ms  {one.jitter:7.0%}  {one.answered:8.0%} {figures}"
            f"   {one.by_label:8.0%}  {one.by_time:7.0%}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all cells, print the table and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--trials", type=int)
    told = parser.parse_args(arguments)
    trials = told.trials or (QUICK_TRIALS if told.quick else TRIALS)
    kinds = list(itertools.product(PERIODS_S, JITTERS))
    with ProcessPoolExecutor() as pool:
        kept, seeds = itertools.repeat(trials), itertools.count()
        made = pool.map(cell, *zip(*kinds, strict=True), kept, seeds)
        forms = pool.map(form_cell, FORMS, itertools.repeat(trials), itertools.count())
        control = pool.submit(shuffled, QUICK_SHUFFLED_TRIALS if told.quick else SHUFFLED_TRIALS, 0)
        cells, form_cells, refused = list(made), list(forms), control.result()
    print_table(cells)
    print("\nother form     answered   error  truth held")
    for one in form_cells:
        error, held = one.error or math.nan, math.nan if one.held is None else one.held
        print(f"{one.form:13} {one.answered:9.0%} {error:7.1%} {held:11.1%}")
    print(f"shuffled names: {refused:.0%} refused")
    found = [bar for one in cells for bar in judged(one)]
    found += [
        Bar(name=f"{one.form}: share held", value=one.held, at_least=LEAST_HELD)
        for one in form_cells
        if one.held is not None
    ]
    found.append(Bar(name="shuffled names: refused", value=refused, at_least=MOSTLY))
    figures = {"forms": [asdict(one) for one in form_cells], "shuffled": refused}
    return bars.finish("phases", told, found, cells=[asdict(one) for one in cells], **figures)


if __name__ == "__main__":
    sys.exit(main())
