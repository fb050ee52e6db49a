"""Compares the energy of short windows with Zeus, CodeCarbon and nvitop, if the truth is known.

Unmodified tools measure a card that is simulated in real time: sensors and call durations of an
H200, a square wave between 100 and 400 W. Each tool runs on each wave in its own process, one
after another, with the same plan of windows. The table has the mean of |reported - true| / true.
The bars: on each wave every other tool is several times worse than ours.

``python -m tests.benchmarks.peers [--quick] [--json FILE] [--peers PYTHON]``: 3 minutes, quick one.
PYTHON is the interpreter of an environment with ``peers.txt``; without it only CodeCarbon, which
is one of our dependencies, is compared. A quick run has six windows of each kind: if it misses a
bar, a full run follows and is judged.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.common.tools import MAKERS, OURS, interpreter, nvidia_smi_stub
from tests.fake_nvml import Scenario, Square, env, h200

DURATIONS_S: Final = (0.05, 0.2)
# period of the wave to duration of the window to how many times worse a peer must be
BARS: Final = {1.03: {0.05: 10.0, 0.2: 5.0}, 0.23: {0.05: 6.0, 0.2: 3.0}}
PERIODS_S: Final = tuple(BARS)
WINDOWS, QUICK_WINDOWS = 40, 6
_PAUSES_S: Final = (0.005, 0.035)  # no window stays in phase with a wave or a sensor
_LIMIT_S: Final = 120.0
_ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window: as planned, as it was, and as reported."""

    duration_s: float
    true_j: float
    reported_j: float

    @property
    def error(self) -> float:
        """Error of the report, as a share of the truth."""
        return abs(self.reported_j - self.true_j) / self.true_j


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All windows of one tool on one wave."""

    tool: str
    period_s: float
    windows: tuple[Window, ...]

    def mean_error(self, duration_s: float) -> float:
        """Return the mean error of the windows of one duration."""
        return statistics.fmean(w.error for w in self.windows if w.duration_s == duration_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How many times worse one peer is than ours, and the bar."""

    tool: str
    period_s: float
    duration_s: float
    times_worse: float
    limit: float

    @property
    def bar(self) -> Bar:
        """Return the bar; an unknown ratio does not meet it."""
        wave, window = f"{1e3 * self.period_s:.0f} ms wave", f"{1e3 * self.duration_s:.0f} ms"
        return Bar(
            name=f"{self.tool}, {wave}, {window} windows: times worse than ours",
            value=self.times_worse,
            at_least=self.limit,
        )


def plan(windows: int, seed: int = 1) -> list[tuple[float, float]]:
    """Return ``(pause_s, duration_s)`` of windows of each duration, in random order."""
    dice = random.Random(seed)
    durations_s = [duration_s for duration_s in DURATIONS_S for _ in range(windows)]
    dice.shuffle(durations_s)
    return [(dice.uniform(*_PAUSES_S), duration_s) for duration_s in durations_s]


def measure(tool: str, python: str, period_s: float, windows: int) -> Row:
    """Run one tool on one wave, in its own process, in real time.

    Raises:
        RuntimeError: if the tool fails; the message has its last lines.
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
        answer = subprocess.run(
            [python, "-m", "tests.benchmarks.common.tools", tool, str(todo), str(done)],
            env=variables,
            cwd=_ROOT,  # Zeus installs a package "tests", too
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
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


def measure_all(windows: int, peers: str | None) -> list[Row]:
    """Run every available tool on every wave, one after another."""
    return [row for period_s in PERIODS_S for row in measure_wave(period_s, windows, peers)]


def measure_wave(period_s: float, windows: int, peers: str | None) -> list[Row]:
    """Run every available tool on one wave."""
    pythons = {tool: interpreter(tool, peers) for tool in MAKERS}
    return [measure(tool, python, period_s, windows) for tool, python in pythons.items() if python]


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Compare each peer with ours, for every wave and duration."""
    ours = {row.period_s: row for row in rows if row.tool == OURS}
    return [
        Verdict(
            tool=row.tool,
            period_s=row.period_s,
            duration_s=duration_s,
            times_worse=row.mean_error(duration_s) / ours[row.period_s].mean_error(duration_s),
            limit=limit,
        )
        for row in rows
        if row.tool != OURS
        for duration_s, limit in BARS[row.period_s].items()
    ]


def table(rows: Sequence[Row]) -> str:
    """Return a table with mean errors in per cent, and how many times worse than ours each is."""
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
        text = "".join(f"{cell:>24}" for cell in cells) if waves else "   not here (--peers)"
        lines.append(f"{tool:<28}{text}")
    return "\n".join(lines)


def main() -> int:
    """Print the table and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter of the peers' environment")
    arguments = parser.parse_args()
    rows = bars.decided(
        lambda is_short: measure_all(QUICK_WINDOWS if is_short else WINDOWS, arguments.peers),
        lambda found: all(verdict.bar.is_met for verdict in verdicts(found)),
        is_quick=arguments.quick,
    )
    print(table(rows))
    if not arguments.peers:
        print(
            "Without peers (--peers PYTHON): of the others only CodeCarbon is compared with ours."
        )
    found = verdicts(rows)
    return bars.finish(
        "peers",
        arguments,
        [verdict.bar for verdict in found],
        rows=[asdict(row) for row in rows],
        verdicts=[asdict(verdict) for verdict in found],
    )


if __name__ == "__main__":
    sys.exit(main())
