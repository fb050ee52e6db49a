"""Energy of short windows beside Zeus, CodeCarbon and nvitop, against a truth that is known.

Unmodified tools measure a card that is played in real time: an H200's sensors and call costs, a
square wave between 100 and 400 W. Each tool and wave has a process of its own, one after another,
and the same plan of windows. Printed is the mean of |reported - true| / true. The bars: on each
wave every peer is several times worse than ours.

``python -m tests.benchmarks.peers [--quick] [--json FILE] [--without-peers]``: 3 minutes, quick
one. The peers come with ``pip install -e '.[benchmarks]'``.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks.tools import MAKERS, OURS, is_installed, nvidia_smi_stub
from tests.fake_nvml import Scenario, Square, env, h200

DURATIONS_S: Final = (0.05, 0.2)
# wave's period -> window's duration -> how many times worse a peer must be
BARS: Final = {1.03: {0.05: 10.0, 0.2: 5.0}, 0.23: {0.05: 6.0, 0.2: 3.0}}
PERIODS_S: Final = tuple(BARS)
WINDOWS, QUICK_WINDOWS = 40, 6
_PAUSES_S: Final = (0.005, 0.035)  # no window keeps in step with a wave or a sensor
_LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window: what was asked for, what was true, what was reported."""

    duration_s: float
    true_j: float
    reported_j: float

    @property
    def error(self) -> float:
        """Share of the truth by which the report is off."""
        return abs(self.reported_j - self.true_j) / self.true_j


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All windows of one tool on one wave."""

    tool: str
    period_s: float
    windows: tuple[Window, ...]

    def mean_error(self, duration_s: float) -> float:
        """Mean error of the windows of one duration."""
        return statistics.fmean(w.error for w in self.windows if w.duration_s == duration_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether one peer is as many times worse than ours as the bar says."""

    tool: str
    period_s: float
    duration_s: float
    times_worse: float
    bar: float

    @property
    def is_met(self) -> bool:
        """Whether the bar is met."""
        return self.times_worse >= self.bar


def plan(windows: int, seed: int = 1) -> list[tuple[float, float]]:
    """``(pause_s, duration_s)`` of so many windows of each duration, in random order."""
    dice = random.Random(seed)
    durations_s = [duration_s for duration_s in DURATIONS_S for _ in range(windows)]
    dice.shuffle(durations_s)
    return [(dice.uniform(*_PAUSES_S), duration_s) for duration_s in durations_s]


def measure(tool: str, period_s: float, windows: int) -> Row:
    """One tool on one wave, in a process of its own, in real time.

    Raises:
        RuntimeError: where the tool fails; the message has its last words.
    """
    steps = plan(windows)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wave = Square(low_w=100.0, high_w=400.0, period_s=period_s)
        scenario = Scenario(cards=(h200(wave),))
        todo, done = folder / "plan.json", folder / "done.json"
        todo.write_text(json.dumps(steps))
        variables = env(scenario.write(folder / "scenario.txt"))
        variables["PATH"] = os.pathsep.join([str(nvidia_smi_stub(folder)), variables["PATH"]])
        command = [sys.executable, "-m", "tests.benchmarks.tools", tool, str(todo), str(done)]
        answer = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
        if answer.returncode != 0:
            raise RuntimeError(f"{tool} failed: {answer.stderr[-2000:]}")
        found = json.loads(done.read_text())
    seen = tuple(
        Window(
            duration_s=duration_s,
            true_j=scenario.energy_j(0, start_s, end_s),
            reported_j=energy_j,
        )
        for (_, duration_s), (start_s, end_s, energy_j) in zip(steps, found, strict=True)
    )
    return Row(tool=tool, period_s=period_s, windows=seen)


def measure_all(
    windows: int, tools: Iterable[str] = tuple(MAKERS), periods_s: Sequence[float] = PERIODS_S
) -> Iterator[Row]:
    """Every tool that is installed on every wave, one after another."""
    for tool in tools:
        if is_installed(tool):
            yield from (measure(tool, period_s, windows) for period_s in periods_s)


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Each peer beside ours, for every wave and duration."""
    ours = {row.period_s: row for row in rows if row.tool == OURS}
    return [
        Verdict(
            tool=row.tool,
            period_s=row.period_s,
            duration_s=duration_s,
            times_worse=row.mean_error(duration_s) / ours[row.period_s].mean_error(duration_s),
            bar=bar,
        )
        for row in rows
        if row.tool != OURS
        for duration_s, bar in BARS[row.period_s].items()
    ]


def missing(tools: Iterable[str] = tuple(MAKERS)) -> list[str]:
    """Peers that are not installed: their bars are not shown to be met."""
    return [tool for tool in tools if not is_installed(tool)]


def table(rows: Sequence[Row]) -> str:
    """Mean errors in per cent, and behind each how many times worse than ours."""
    heads = [f"{1e3 * p:.0f} ms wave, {1e3 * d:.0f} ms" for p in PERIODS_S for d in DURATIONS_S]
    lines = [f"{'mean |error| of windows':<28}" + "".join(f"{head:>24}" for head in heads)]
    times = {(v.tool, v.period_s, v.duration_s): v for v in verdicts(rows)}
    by_tool = {tool: {r.period_s: r for r in rows if r.tool == tool} for tool in MAKERS}
    for tool, waves in by_tool.items():
        cells = []
        for period_s in PERIODS_S if waves else ():
            for duration_s in DURATIONS_S:
                verdict = times.get((tool, period_s, duration_s))
                share = f"{waves[period_s].mean_error(duration_s):.1%}"
                cells.append(share + (f" ({verdict.times_worse:5.1f} x)" if verdict else " " * 10))
        text = "".join(f"{cell:>24}" for cell in cells) if waves else "   not installed"
        lines.append(f"{tool:<28}{text}")
    return "\n".join(lines)


def main() -> int:
    """Print the table; 1 where a bar is missed, or cannot be shown for want of a peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--without-peers", action="store_true", help="peers may be missing")
    arguments = parser.parse_args()
    rows = list(measure_all(QUICK_WINDOWS if arguments.quick else WINDOWS))
    print(table(rows))
    found, absent = verdicts(rows), missing()
    met = "met by those that are installed" if absent else "met"
    for period_s, bars in BARS.items():
        for duration_s, bar in bars.items():
            here = [v for v in found if (v.period_s, v.duration_s) == (period_s, duration_s)]
            missed = [v.tool for v in here if not v.is_met]
            said = f"MISSED by {', '.join(missed)}" if missed else met if here else "NOT SHOWN"
            print(
                f"bar: peers {bar:g} x worse, {1e3 * period_s:.0f} ms wave, "
                f"{1e3 * duration_s:.0f} ms windows: {said}"
            )
    for tool in absent:
        print(f"{tool}: not installed, its bars are not shown; pip install -e '.[benchmarks]'")
    if arguments.json:
        said = {"rows": [asdict(row) for row in rows], "verdicts": [asdict(v) for v in found]}
        arguments.json.write_text(json.dumps({**said, "not_installed": absent}))
    is_met = all(v.is_met for v in found) and (arguments.without_peers or not absent)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
