"""Measures answers that are asked for while the meter runs, on simulated cards in virtual time.

Windows: ``meter.energy(now - width, now)`` under loads of ``random_windows``, and the same window
asked after the run. Each card has a gain error of up to 5 %, which the stated interval must
include; errors are compared without it. Bars, for each card and width: the interval holds the true
energy in 90 % of windows, and the mean error is at most twice that of the same window asked later.

Reports: trainings that repeat ``train`` and ``validation`` of 50 to 500 ms, and a report every
second. Each phase of each report is compared with what the finished run says of the same time. Bars
for each card: the difference is never larger than the stated error of the report, which holds the
true energy in 90 % of phases, and reports lack 6 s on average at most.

``python -m tests.benchmarks.live [--quick] [--json FILE]``: 4 runs of each load and
of each training, quick 1.
"""

import itertools
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.metrics.phase_energy import PhaseEnergy
from energy_callbacks.accounting.phases import PhaseSpan
from energy_callbacks.core.records import Energy
from energy_callbacks.report import build
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource
from energy_callbacks.sensing.timeline import Timeline
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.common.cards import LOADS
from tests.benchmarks.common.random_windows import LOADS as RANDOM_LOADS
from tests.fake_nvml import Card, FakeNvml, Recorded, Scenario, a100, card_uuid, h200
from tests.fake_nvml.test_fake_card import CardClock

CARDS: Final[dict[str, Callable[..., Card]]] = {"H200": h200, "A100": a100}
WIDTHS_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
WINDOW_LOADS: Final = (*RANDOM_LOADS, "1030 ms")
PHASES_S: Final = ((0.25, 0.05), (0.1, 0.1), (0.5, 0.25), (0.05, 0.5))
LEVELS_W: Final = {"train": 400.0, "validation": 100.0}
RUNS, QUICK_RUNS = 4, 1
LEAST_HELD, MOST_RATIO, MOST_BEHIND_S = 0.9, 2.0, 6.0
_GAIN: Final = 0.05
_SPREAD: Final = 0.1
_SETTLING_S: Final = 6.0  # before this time the period of the counter is not known yet
_WINDOWS_S: Final = 30.0
_REPORTS_S: Final = 15.0
_START_S: Final = 5.0  # when the training begins
_RISE_S: Final = 1e-6
_IDLE_W: Final = 90.0
_KEY: Final = "gpu0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window that ends now; ``later`` is the answer after the run."""

    card: str
    width_s: float
    true_j: float
    gain: float
    live: Energy
    later: Energy

    @property
    def is_held(self) -> bool:
        """Whether the interval stated at once holds the true energy."""
        return abs(_joules(self.live) - self.true_j) <= self.live.error_j

    def error_j(self, found: Energy) -> float:
        """Return the error without that of the gain."""
        return abs(_joules(found) / self.gain - self.true_j)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A phase in a report of a running meter.

    Attributes:
        card: name of the card.
        behind_s: time from the end of what the report speaks of to the report.
        live_j: energy in the report.
        error_j: its stated error.
        final_j: what the finished run says of the same time.
        true_j: the true energy in that time.
    """

    card: str
    behind_s: float
    live_j: float
    error_j: float
    final_j: float
    true_j: float


@contextmanager
def running(card: Card, seed: int) -> Iterator[tuple[EnergyMeter, FakeNvml, CardClock]]:
    """Yield a running meter that reads only this card, in virtual time."""
    scenario = Scenario(cards=(card,), epoch_unix_s=1.7e9 + 13.37 * seed)
    with tempfile.TemporaryDirectory() as folder:
        nvml = FakeNvml(scenario, Path(folder))
        try:
            clock = CardClock(nvml.time)
            clock.advance(np.random.default_rng(seed).uniform(3.0, 4.0))
            config = EnergyConfig(report_dir=Path(folder) / "run")
            source = NvmlSource(clock, card_uuid(0))
            yield EnergyMeter(config=config, clock=clock, sources=[source]).start(), nvml, clock
        finally:
            nvml.close()


def windows(card: str, load: str, seed: int) -> Iterator[Window]:
    """Ask for windows that end now at random moments, and for the same windows after the run."""
    random = np.random.default_rng([seed, *load.encode()])
    made = CARDS[card](LOADS[load](seed, random.uniform(1.0 - _SPREAD, 1.0 + _SPREAD)))
    gain = random.uniform(1.0 - _GAIN, 1.0 + _GAIN)
    made = replace(made, sensor=replace(made.sensor, gain=gain, counter_gained=True))
    asked: list[tuple[float, float, float, Energy]] = []
    with running(made, seed) as (meter, nvml, clock):
        clock.advance(_SETTLING_S)
        end_s = clock.monotonic_s() + _WINDOWS_S
        for width_s in itertools.cycle(WIDTHS_S):
            clock.advance(random.uniform(0.1, 0.5))
            now_s = clock.monotonic_s()
            if now_s >= end_s:
                break
            start_s = now_s - width_s * random.uniform(1.0 - _SPREAD, 1.0 + _SPREAD)
            asked.append((width_s, start_s, now_s, meter.energy(start_s, now_s, "gpu")))
        clock.advance(_SETTLING_S)
        meter.stop()
        ahead_s = clock.unix_s() - clock.monotonic_s()
        for width_s, start_s, now_s, live in asked:
            yield Window(
                card=card,
                width_s=width_s,
                true_j=nvml.energy_j(0, start_s + ahead_s, now_s + ahead_s),
                gain=gain,
                live=live,
                later=meter.energy(start_s, now_s, "gpu"),
            )


def training(phases_s: tuple[float, float], seed: int) -> list[PhaseSpan]:
    """Return the phases of a training, in time since the start of the simulation."""
    random = np.random.default_rng(seed)
    spans: list[PhaseSpan] = []
    end_s = _START_S
    for name, mean_s in itertools.cycle(zip(LEVELS_W, phases_s, strict=True)):
        if end_s > _START_S + _REPORTS_S:
            return spans
        start_s, end_s = end_s, end_s + mean_s * random.uniform(1.0 - _SPREAD, 1.0 + _SPREAD)
        spans.append(PhaseSpan(name=name, start_s=start_s, end_s=end_s))
    return spans


def signal(spans: Sequence[PhaseSpan]) -> Recorded:
    """Return the power of a training, which changes at the edges of its phases."""
    points = [(0.0, _IDLE_W), (_START_S, _IDLE_W)]
    for span in spans:
        points += [(span.start_s + _RISE_S, LEVELS_W[span.name]), (span.end_s, LEVELS_W[span.name])]
    return Recorded(tuple(points))


def looks(card: str, phases_s: tuple[float, float], seed: int) -> Iterator[Look]:
    """Ask for a report each second of a training, and compare it with the finished run."""
    spans = training(phases_s, seed)
    power = signal(spans)
    reports: list[tuple[float, EnergyReport]] = []
    with running(CARDS[card](power), seed) as (meter, nvml, clock):
        zero_s = nvml.scenario.epoch_unix_s - clock.unix_s() + clock.monotonic_s()
        attempt = meter._lifecycle.running
        assert attempt is not None
        recorder, timeline = attempt.recorder, attempt.timeline
        for span in spans:
            clock.advance(max(zero_s + span.start_s - clock.monotonic_s(), 0.0))
            # At the exact time: in virtual time, calls of the driver delay the training.
            recorder.leave(recorder.phases.name, zero_s + span.start_s)
            recorder.enter(span.name, zero_s + span.start_s)
            if clock.monotonic_s() - recorder.start_s > len(reports) + 1:
                reports.append((clock.monotonic_s() - recorder.start_s, _report(meter, clock)))
        meter.stop()
        moved = [replace(s, start_s=zero_s + s.start_s, end_s=zero_s + s.end_s) for s in spans]
        for at_s, report in reports:
            until_s = recorder.start_s + report.run.duration_s
            final_j = finished(timeline, recorder.start_s, moved, until_s)
            for phase in report.phases:
                true_j = _true_j(power, spans, phase.name, until_s - zero_s)
                if true_j > 0.0 and phase.gpu.energy_j is not None:
                    yield Look(
                        card=card,
                        behind_s=at_s - report.run.duration_s,
                        live_j=phase.gpu.energy_j,
                        error_j=phase.gpu.error_j,
                        final_j=final_j[phase.name],
                        true_j=true_j,
                    )


def _report(meter: EnergyMeter, clock: CardClock) -> EnergyReport:
    """Return what ``meter.report()`` returns, with the time of the simulation."""
    meter._complete_journals()
    assert meter.run_folder is not None
    return build(meter.run_folder, now_unix_s=clock.unix_s())


def finished(
    timeline: Timeline, start_s: float, spans: Sequence[PhaseSpan], until_s: float
) -> dict[str, float]:
    """Return the energy of each phase up to a moment, as the report of the finished run has it."""
    phases, sums_j = PhaseEnergy(timeline), defaultdict[str, float](float)
    first = PhaseSpan(name="idle", start_s=start_s, end_s=spans[0].start_s)
    for span in (first, *spans):
        cut = replace(span, end_s=min(span.end_s, until_s))
        if cut.end_s > cut.start_s:
            phases.add(cut)
            sums_j[span.name] += _joules(timeline.energy(_KEY, cut.start_s, cut.end_s))
    phases.update(until_s, is_final=True)
    fitted_j = {name: _joules(one) for name, one in phases.energies().get(_KEY, {}).items()}
    known_j = sum(fitted_j.values())
    if not known_j:
        return sums_j
    scale = _joules(timeline.energy(_KEY, start_s, until_s)) / known_j
    return {name: scale * energy_j for name, energy_j in fitted_j.items()}


def _true_j(power: Recorded, spans: Sequence[PhaseSpan], name: str, until_s: float) -> float:
    cut = [(s.start_s, min(s.end_s, until_s)) for s in spans if s.name == name]
    return sum(power.energy_j(start_s, end_s) for start_s, end_s in cut if end_s > start_s)


def _joules(energy: Energy) -> float:
    return float("nan") if energy.energy_j is None else energy.energy_j


def _window_bars(found: Sequence[Window]) -> Iterator[Bar]:
    for card, width_s in itertools.product(CARDS, WIDTHS_S):
        own = [one for one in found if (one.card, one.width_s) == (card, width_s)]
        live, later = (
            np.mean([w.error_j(e) for w, e in pairs])
            for pairs in zip(*(((w, w.live), (w, w.later)) for w in own), strict=True)
        )
        held = float(np.mean([one.is_held for one in own]))
        extrapolated = np.mean(["extrapolated" in one.live.method for one in own])
        mean_j = np.mean([one.true_j for one in own])
        name = f"{card}, {1e3 * width_s:g} ms"
        print(
            f"{name:<16}{len(own):>6} windows, held {held:5.1%}, mean error {live / mean_j:6.2%}, "
            f"later {later / mean_j:6.2%}, extrapolated {extrapolated:4.0%}"
        )
        yield Bar(name=f"{name}: share held", value=held, at_least=LEAST_HELD)
        ratio = float(live / later)
        yield Bar(name=f"{name}: error, of the later one", value=ratio, at_most=MOST_RATIO)


def _report_bars(found: Sequence[Look]) -> Iterator[Bar]:
    for card in CARDS:
        own = [one for one in found if one.card == card]
        is_final = [abs(one.live_j - one.final_j) <= one.error_j for one in own]
        is_true = [abs(one.live_j - one.true_j) <= one.error_j for one in own]
        off = np.median([abs(one.live_j - one.final_j) / one.true_j for one in own])
        width = np.median([one.error_j / one.true_j for one in own])
        behind_s = float(np.mean([one.behind_s for one in own]))
        print(
            f"{card:<16}{len(own):>6} phases of reports, final held {np.mean(is_final):5.1%}, "
            f"truth held {np.mean(is_true):5.1%}, median difference {off:6.2%}, "
            f"half-width {width:6.2%}, {behind_s:.1f} s behind"
        )
        name = f"{card}, reports"
        yield Bar(name=f"{name}: final held", value=float(np.mean(is_final)), at_least=1.0)
        yield Bar(name=f"{name}: truth held", value=float(np.mean(is_true)), at_least=LEAST_HELD)
        yield Bar(name=f"{name}: s behind", value=behind_s, at_most=MOST_BEHIND_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns 1 if a bar is missed."""
    told = bars.parser(__doc__).parse_args(arguments)
    seeds = range(QUICK_RUNS if told.quick else RUNS)
    asked = [
        window
        for card, load, seed in itertools.product(CARDS, WINDOW_LOADS, seeds)
        for window in windows(card, load, seed)
    ]
    seen = [
        look
        for card, phases_s, seed in itertools.product(CARDS, PHASES_S, seeds)
        for look in looks(card, phases_s, seed)
    ]
    found = [*_window_bars(asked), *_report_bars(seen)]
    return bars.finish(
        "live", told, found, windows=list(map(asdict, asked)), reports=list(map(asdict, seen))
    )


if __name__ == "__main__":
    sys.exit(main())
