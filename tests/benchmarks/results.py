"""Stores the results of benchmarks, and writes the table of all bars in ``docs/benchmarks.md``.

``python -m tests.benchmarks.results FILE...``: each FILE is the output of ``python -m
tests.benchmarks --json FILE``. A benchmark replaces its earlier results in ``results.json``; the
results of benchmarks that are not in any FILE, or were skipped, are kept. Without FILE, only the
table is written.
"""

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.__main__ import BENCHMARKS, ROOT

STORED: Final = Path(__file__).with_name("results.json")
PAGE: Final = ROOT / "docs" / "benchmarks.md"
BEGIN: Final = "<!-- Written by python -m tests.benchmarks.results -->"
END: Final = "<!-- End of the results -->"
_HEAD: Final = "| benchmark | bar | limit | value | result |\n|---|---|---|---|---|"
_DIGITS: Final = 4

Results = dict[str, dict[str, Any]]
"""For each benchmark: ``is_quick``, ``date``, and ``bars``, a list of one dictionary for each."""


def merged(stored: Mapping[str, Any], outcomes: Sequence[Mapping[str, Any]]) -> Results:
    """Return stored results, replaced by those of outcomes.

    Args:
        stored: results by name of the benchmark.
        outcomes: the list that ``python -m tests.benchmarks --json`` has written.

    Raises:
        ValueError: if a benchmark has failed before it wrote any figures.
    """
    results = dict(stored)
    for one in outcomes:
        figures = one["figures"]
        if "skipped" in figures:
            continue
        if "bars" not in figures:
            raise ValueError(f"{one['name']} has no figures: it failed; run it again")
        results[one["name"]] = {
            "is_quick": figures["is_quick"],
            "date": figures["date"],
            "bars": [_stored(bar) for bar in figures["bars"]],
        }
    return {name: results[name] for name in BENCHMARKS if name in results}


def _stored(bar: Mapping[str, Any]) -> dict[str, Any]:
    """Return a bar with rounded numbers, and ``None`` for a value that is not known."""
    names = ("value", "at_least", "at_most")
    return {
        "name": bar["name"],
        **{name: _rounded(bar[name]) for name in names},
        "verdict": bar["verdict"],
    }


def _rounded(value: float | None) -> float | None:
    """Return the number with ``_DIGITS`` significant digits; ``None`` if it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{_DIGITS}g}")


def section(results: Mapping[str, Any]) -> str:
    """Return what is between the marks of the page: the number of results, and the table."""
    bars = [(name, bar) for name, one in results.items() for bar in one["bars"]]
    counts = Counter(bar["verdict"] for _, bar in bars)
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    runs = "; ".join(
        f"`{name}` {'quick' if one['is_quick'] else 'full'}, {one['date']}"
        for name, one in results.items()
    )
    rows = "\n".join(_row(name, bar) for name, bar in bars)
    return f"{len(bars)} bars: {summary}.\n\nRuns: {runs}.\n\n{_HEAD}\n{rows}"


def _row(benchmark: str, bar: Mapping[str, Any]) -> str:
    value = "not known" if bar["value"] is None else f"{bar['value']:g}"
    verdict = bar["verdict"] if bar["verdict"] in ("met", "not judged") else f"**{bar['verdict']}**"
    name = bar["name"].replace("|", "\\|")
    return f"| {benchmark} | {name} | {_limit(bar)} | {value} | {verdict} |"


def _limit(bar: Mapping[str, Any]) -> str:
    """Return the limits of a bar, such as ``at least 0.9``."""
    limits = (("at least", bar["at_least"]), ("at most", bar["at_most"]))
    return ", ".join(f"{text} {limit:g}" for text, limit in limits if limit is not None)


def written(page: str, results: Mapping[str, Any]) -> str:
    """Return the page with the results between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{section(results)}\n\n{END}{after}"


def load() -> Results:
    """Return the stored results."""
    found: Results = json.loads(STORED.read_text(encoding="utf-8"))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Store the results of the files, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    told = parser.parse_args(arguments)
    results = load() if STORED.exists() else {}
    for file in told.files:
        results = merged(results, json.loads(file.read_text(encoding="utf-8")))
    STORED.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
