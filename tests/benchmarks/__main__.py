"""Runs all benchmarks, each in its own process, and prints one table.

``python -m tests.benchmarks [--quick] [--json FILE] [--peers PYTHON] [NAME ...]``: exits with 1
if a benchmark fails, that is, if it misses a bar that ``known_misses.toml`` does not list. With
``--quick`` it takes some minutes and needs no GPU. Benchmarks in which no real time counts run two
at a time; the others run alone, so that they do not slow each other down. One of these that misses
a bar runs once more after all others, and the second run counts: other programs of a shared machine
slow down one run, a slower program of ours both.

The tools that ours are compared with need their own environment; PYTHON is its interpreter::

    python -m venv .venv/peers
    .venv/peers/bin/python -m pip install -r tests/benchmarks/peers.txt -c constraints.txt

Without it CodeCarbon, which is one of our dependencies, is the only one; other bars are judged.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.bars import FAILURES, SKIPPED

BENCHMARKS: Final = (
    "accuracy",
    "calibration",
    "comparison",
    "controllers",
    "crash",
    "finders",
    "fit_end",
    "forecast",
    "hooks",
    "import_time",
    "lines",
    "live",
    "longrun",
    "many_fits",
    "no_callback",
    "overhead",
    "page",
    "peers",
    "phases",
    "planner",
    "power_limit",
    "predictor",
    "query",
    "simulated_gpu",
    "stalls",
    "tuner",
)
# Their results do not depend on how fast the machine is.
UNTIMED: Final = (
    "accuracy",
    "calibration",
    "comparison",
    "controllers",
    "forecast",
    "live",
    "phases",
    "planner",
    "power_limit",
    "predictor",
    "tuner",
)
WITH_PEERS: Final = ("import_time", "overhead", "peers")
QUICK_OPTIONS: Final = {"overhead": ["--fake"]}
ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one benchmark ended.

    Attributes:
        name: name of the benchmark.
        seconds: its duration.
        code: its exit status.
        figures: its results; empty if it failed before it wrote any.
    """

    name: str
    seconds: float
    code: int
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def is_failure(self) -> bool:
        """Whether a bar is missed or the benchmark has failed."""
        return self.code not in (0, SKIPPED)

    @property
    def has_missed(self) -> bool:
        """Whether the benchmark has run to its end and missed a bar."""
        return self.is_failure and "bars" in self.figures

    @property
    def status(self) -> str:
        """The status in the table."""
        if self.code == SKIPPED:
            return f"skipped: {self.figures.get('skipped', 'it does not say why')}"
        if "bars" not in self.figures:
            return f"FAILED: no figures, exit status {self.code}"
        return "FAILED" if self.is_failure else "passed"

    def count(self, *verdicts: str) -> int:
        """Return the number of bars that have one of these verdicts."""
        return sum(bar["verdict"] in verdicts for bar in self.figures.get("bars", []))


def command(name: str) -> list[str]:
    """Return the command that starts a benchmark."""
    return [sys.executable, "-m", f"tests.benchmarks.{name}"]


def run(name: str, options: Sequence[str]) -> Outcome:
    """Run one benchmark in its own process, and show its output when it has ended."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        start_s = time.monotonic()
        ended = subprocess.run(
            [*command(name), *options, "--json", str(file)],
            cwd=ROOT,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        seconds, code = time.monotonic() - start_s, ended.returncode
        head = f"\n== {name} {' '.join(options)}".rstrip()
        print(f"{head}\n{ended.stdout}", end="", flush=True)
        figures = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if code == 0 and "bars" not in figures:
        code = 1
    return Outcome(name=name, seconds=seconds, code=code, figures=figures)


def options(name: str, *, is_quick: bool, peers: str | None) -> list[str]:
    """Return the options of one benchmark."""
    told = ["--quick", *QUICK_OPTIONS.get(name, [])] if is_quick else []
    return [*told, "--peers", peers] if peers and name in WITH_PEERS else told


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the table, a line for each benchmark."""
    heads = f"{'seconds':>9}{'met':>6}{'missed':>8}{'known':>7}{'not judged':>12}"
    lines = [f"{'benchmark':<14}{heads}  status"]
    for one in outcomes:
        counts = (
            f"{one.count('met'):>6}{one.count(*FAILURES):>8}{one.count('known miss'):>7}"
            f"{one.count('not judged'):>12}"
        )
        lines.append(f"{one.name:<14}{one.seconds:>9.1f}{counts}  {one.status}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks and print the table; returns 1 if one fails."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter of the peers' environment")
    told = parser.parse_args(arguments)
    if unknown := set(told.names) - set(BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; see --help")
    names = told.names or BENCHMARKS

    def one(name: str) -> Outcome:
        return run(name, options(name, is_quick=told.quick, peers=told.peers))

    with ThreadPoolExecutor(max_workers=2) as both:
        found = {each.name: each for each in both.map(one, (n for n in names if n in UNTIMED))}
    timed = [name for name in names if name not in UNTIMED]
    found |= {name: one(name) for name in timed}
    found |= {name: one(name) for name in timed if found[name].has_missed}
    outcomes = [found[name] for name in names]
    print(f"\n{table(outcomes)}")
    if not told.peers:
        print("Without peers (--peers PYTHON): of other tools, CodeCarbon alone was measured.")
    if told.json:
        told.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1) + "\n")
    return 1 if any(one.is_failure for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
