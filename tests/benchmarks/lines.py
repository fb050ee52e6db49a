"""Measures what reading the stack costs a training, and the accuracy of lines; also for Scalene.

Three questions, without a GPU, in at most four minutes:

* How long does a stack sample stop a Python loop: hand-over of the interpreter, request, and
  reading of the stack? The median, times the number of samples. Bar: below 1 % of the time.
* How much longer do steps take meanwhile? Rounds alternate (``pairs``) on a loop of Python and
  small matrix products. Bar: the 95 % interval does not lie above 1 %; on a shared machine it is
  some per cent wide, so the first bar is the sharper one.
* One program (``lines_script``) with Python, native code and a sleep runs alone, with our profiler
  and under Scalene, in turn: how much longer its work takes, and how far the share of each line is
  from the program's own clock. Bar: ours within 0.1 of the truth, in a quick run within 0.15,
  judged if three standard errors are smaller. Beside other programs samples become rare, and then
  more runs of ours follow. With two processors the sampling thread waits behind the training's own
  thread; with more it does not, and shares are closer.

``python -m tests.benchmarks.lines [--quick] [--json FILE]``; quick without Scalene, which is also
omitted if it is not installed (``pip install scalene``). A quick run that misses the second or the
third bar measures it again for as long as a full run does, and that is judged.
"""

import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402 - after the number of threads

from energy_callbacks.profiling.lines import LineProfiler  # noqa: E402
from energy_callbacks.profiling.lines.stack_sampler import StackSampler  # noqa: E402
from energy_callbacks.profiling.lines.tally import LineTally  # noqa: E402
from tests.benchmarks import bars  # noqa: E402
from tests.benchmarks.bars import Bar  # noqa: E402
from tests.benchmarks.common.loops import Loop  # noqa: E402
from tests.benchmarks.common.pairs import Change, interleaved  # noqa: E402
from tests.benchmarks.common.quiet_core import quiet_core  # noqa: E402

CHANGE_BAR: Final = 0.01
SHARE_BAR: Final = 0.1
QUICK_SHARE_BAR: Final = 0.15  # of some hundred samples
MORE_RUNS: Final = 3  # of ours at most, if samples are too few; quick stays near a minute
PAIRS, QUICK_PAIRS = 60, 10  # rounds with and without sampling
ROUNDS: Final = 4  # of all tools
SCRIPT: Final = Path(__file__).parent / "common" / "lines_script.py"
_LINES: Final = {"python": "PYTHON", "native": "NATIVE", "sleep": "SLEEP"}


class Asking:
    """Samples the stack in rounds "with" only."""

    turns = 0
    is_busy = False

    def __init__(self) -> None:
        self._asker: StackSampler | None = None
        self._tally = LineTally(time.monotonic())

    def is_due(self) -> bool:
        """Never: there is nothing to catch up with."""
        return False

    def switch(self, is_on: bool) -> None:
        """Start a new sampling thread for each round "with"."""
        if self._asker is not None:
            self._asker.stop()
        self._asker = (
            StackSampler(self._tally.take, LineProfiler().rate_hz, 0.01) if is_on else None
        )
        if self._asker is not None:
            self._asker.start()


def python_loop() -> Loop:
    """Return a loop of about 1.5 ms a step, half of it Python."""
    matrix = np.random.default_rng(0).normal(size=(160, 160))

    def step() -> None:
        for _ in range(4):
            product = matrix @ matrix
            product.sum()
            for _ in range(4000):
                pass

    for _ in range(50):
        step()
    start_s = time.perf_counter()
    for _ in range(200):
        step()
    step_s = (time.perf_counter() - start_s) / 200
    return Loop(name="Python and numpy", step=step, wait=lambda: None, step_s=step_s)


def overhead(pairs: int) -> Change:
    """Run rounds with and without sampling in turn."""
    loop, asking = python_loop(), Asking()
    with quiet_core(loop) as settle:
        found = interleaved(loop, pairs, loop.step, asking, settle=settle)
    asking.switch(False)
    return found


def standstill(duration_s: float) -> tuple[float, int]:
    """Return the median seconds that a sample of thirty calls stops a loop, and their number."""
    asker = StackSampler(LineTally(time.monotonic()).take, LineProfiler().rate_hz, 0.01)
    gaps_s: list[float] = []

    def deep(calls: int) -> None:
        if calls:
            deep(calls - 1)
            return
        looks, end_s = 0, time.perf_counter() + duration_s
        before_s = last_s = time.perf_counter()
        while last_s < end_s:
            now_s = time.perf_counter()
            if asker.looks != looks:  # the interpreter is handed over just before
                gaps_s.append(now_s - before_s)
                looks = asker.looks
            before_s, last_s = last_s, now_s

    asker.start()
    deep(30)
    asker.stop()
    return statistics.median(gaps_s), len(gaps_s)


def run_script(tool: str, turns: int) -> dict[str, Any]:
    """Run the program once; returns what its lines took, and what the tool reports."""
    with tempfile.TemporaryDirectory() as name:
        out, profile = Path(name) / "out.json", Path(name) / "profile.json"
        command = [sys.executable, str(SCRIPT), "ours" if tool == "ours" else "alone"]
        if tool == "Scalene":
            options = ["run", "--cpu-only", "-o", str(profile)]
            command = [sys.executable, "-m", "scalene", *options, str(SCRIPT), "---", "alone"]
        command += [str(out), str(turns)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if not out.exists():
            raise RuntimeError(f"{tool} ended with {done.returncode}: {done.stderr[-500:]}")
        found: dict[str, Any] = json.loads(out.read_text())
        if tool == "Scalene":
            found["by_line"] = scalene_lines(json.loads(profile.read_text()))
    return found


def scalene_lines(profile: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of each line from the percentages of Scalene."""
    (file,) = [value for path, value in profile["files"].items() if path.endswith(SCRIPT.name)]
    names = ("n_cpu_percent_python", "n_cpu_percent_c", "n_sys_percent")
    return {
        line["line"].strip(): sum(line[name] for name in names)
        / 100.0
        * profile["elapsed_time_sec"]
        for line in file["lines"]
    }


def shares(found: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Return the share of each hot line: by the program's own clock, and by the tool."""
    told = {
        kind: sum(s for line, s in found["by_line"].items() if line.endswith(f"# {comment}"))
        for kind, comment in _LINES.items()
    }
    truth, whole = found["took_s"], sum(told.values()) or 1.0
    all_s = sum(truth.values())
    return {kind: (truth[kind] / all_s, told[kind] / whole) for kind in _LINES}


def off(tools: dict[str, Any]) -> float:
    """Return the largest error of our shares."""
    return max(abs(truth - told) for truth, told in tools["ours"]["shares"].values())


def share_error(looks_s: Sequence[float]) -> float:
    """Return the largest standard error of a share, that of one half, from the samples' seconds.

    Samples of unequal duration count as fewer equal ones (Kish's effective sample size, "Survey
    Sampling", 1965).
    """
    if not looks_s:
        return math.inf
    effective = sum(looks_s) ** 2 / sum(one_s**2 for one_s in looks_s)
    return 0.5 / math.sqrt(effective)


def is_precise(looks_s: Sequence[float], bar: float) -> bool:
    """Whether three standard errors of a share are below the bar."""
    return 3.0 * share_error(looks_s) <= bar


def side_by_side(turns: int, rounds: int, tools: Sequence[str], bar: float) -> dict[str, Any]:
    """Run all tools in turn, then ours alone until its samples are enough for the bar."""
    runs: dict[str, list[dict[str, Any]]] = {tool: [] for tool in tools}
    for number in range(rounds):
        for tool in tools if number % 2 == 0 else tools[::-1]:
            runs[tool].append(run_script(tool, turns))
    looks_s = [one_s for one in runs["ours"] for one_s in one["looks_s"]]
    for _ in range(MORE_RUNS):
        if is_precise(looks_s, bar):
            break
        runs["ours"].append(run_script("ours", turns))
        looks_s += runs["ours"][-1]["looks_s"]
    work_s = {
        tool: statistics.median(one["took_s"]["python"] + one["took_s"]["native"] for one in ones)
        for tool, ones in runs.items()
    }
    found: dict[str, Any] = {}
    for tool in tools[1:]:
        by_run = [shares(one) for one in runs[tool]]
        found[tool] = {
            "slower": work_s[tool] / work_s["alone"] - 1.0,
            "shares": {
                kind: [statistics.mean(one[kind][i] for one in by_run) for i in (0, 1)]
                for kind in _LINES
            },
        }
    found["ours"]["cost_share"] = statistics.mean(one["cost_share"] for one in runs["ours"])
    found["ours"]["looks_s"] = looks_s
    return found


def main() -> int:
    """Print the tables and return the exit status."""
    arguments = bars.parser(__doc__).parse_args()
    is_quick = arguments.quick
    still_for_s = 10.0 if is_quick else 30.0
    share_bar = QUICK_SHARE_BAR if is_quick else SHARE_BAR
    names = ["alone", "ours"]
    if importlib.util.find_spec("scalene") and not is_quick:
        names.append("Scalene")
    found = bars.decided(
        lambda is_short: overhead(QUICK_PAIRS if is_short else PAIRS),
        lambda change: change.low <= CHANGE_BAR,
        is_quick=is_quick,
    )
    still_s, looks = standstill(still_for_s)
    tools = bars.decided(
        lambda is_short: side_by_side(300, 1 if is_short else ROUNDS, names, share_bar),
        lambda measured: off(measured) <= share_bar,
        is_quick=is_quick,
    )
    looks_s = tools["ours"].pop("looks_s")
    rate_hz = LineProfiler().rate_hz
    print(f"a look: the loop stands still for {1e6 * still_s:.0f} us, median of {looks}")
    print(
        f"asking {rate_hz:g} times a second: steps of {1e3 * found.step_s:.2f} ms "
        f"are {found.change:+.2%} longer ({found.low:+.2%} .. {found.high:+.2%})\n"
    )
    print(f"{'':<10}{'slower':>9}" + "".join(f"{kind + ': truth, told':>24}" for kind in _LINES))
    for tool, one in tools.items():
        cells = "".join(f"{truth:>15.3f}{told:>9.3f}" for truth, told in one["shares"].values())
        print(f"{tool:<10}{one['slower']:>+9.1%}{cells}")
    print(
        f"\nof {len(looks_s)} looks: shares have a standard error of {share_error(looks_s):.3f}\n"
        f"our threads and looks take {tools['ours']['cost_share']:.2%} of the time\n"
    )
    judged = [
        Bar(
            name="share of the time that a loop is stopped",
            value=still_s * looks / still_for_s,
            at_most=CHANGE_BAR,
        ),
        Bar(name="steps longer, lower end", value=found.low, at_most=CHANGE_BAR),
        Bar(
            name="shares of our lines off by",
            value=off(tools),
            at_most=share_bar,
            is_judged=is_precise(looks_s, share_bar),
        ),
    ]
    return bars.finish(
        "lines", arguments, judged, standstill_s=still_s, overhead=asdict(found), tools=tools
    )


if __name__ == "__main__":
    raise SystemExit(main())
