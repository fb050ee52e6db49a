"""The page of benchmarks shows the stored results, and every benchmark has some."""

import json
import re
from pathlib import Path

import pytest

from tests.benchmarks import __main__ as runner
from tests.benchmarks import results


def outcome(name: str, **figures: object) -> dict[str, object]:
    """Return an entry of the list that ``python -m tests.benchmarks --json`` writes."""
    return {"name": name, "seconds": 1.0, "code": 0, "figures": figures}


def finished(name: str, value: float, *, verdict: str = "met") -> dict[str, object]:
    """Return the outcome of a quick run with one bar of at most 0.5."""
    bar = {"name": "a | b", "value": value, "at_least": None, "at_most": 0.5, "verdict": verdict}
    return outcome(name, bars=[bar], is_quick=True, date="2026-11-26", rows=[1])


def test_page_shows_the_stored_results() -> None:
    """``python -m tests.benchmarks.results`` changes nothing."""
    page = results.PAGE.read_text(encoding="utf-8")
    assert results.written(page, results.load()) == page


def test_every_benchmark_has_results() -> None:
    """Every module that has bars is in ``results.json``, in the order of the runner."""
    modules = Path(runner.__file__).parent.glob("*.py")
    with_bars = {m.stem for m in modules if "bars.finish(" in m.read_text(encoding="utf-8")}
    stored = results.load()
    assert set(stored) == with_bars
    assert all(one["bars"] for one in stored.values())
    assert list(stored) == list(runner.BENCHMARKS)


def test_newer_results_replace_those_of_their_benchmark() -> None:
    """Results of other benchmarks, and of those that were skipped, are kept."""
    stored = results.merged({}, [finished("lines", 0.1), finished("page", 0.2)])
    newer = [finished("lines", 0.3), outcome("page", skipped="no browser")]
    found = results.merged(stored, newer)
    assert {name: one["bars"][0]["value"] for name, one in found.items()} == {
        "lines": 0.3,
        "page": 0.2,
    }


def test_benchmark_that_failed_without_figures_is_refused() -> None:
    """Its earlier results would look like those of this run."""
    with pytest.raises(ValueError, match="lines has no figures"):
        results.merged({}, [outcome("lines")])


def test_value_that_is_not_known_is_valid_json() -> None:
    """NaN becomes ``null``, and the table says that the value is not known."""
    stored = results.merged({}, [finished("lines", float("nan"), verdict="MISSED")])
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored
    assert "| lines | a \\| b | at most 0.5 | not known | **MISSED** |" in results.section(stored)


def test_numbers_have_four_digits() -> None:
    """Results of the same run on another machine differ in fewer lines."""
    stored = results.merged({}, [finished("lines", 0.123456)])
    assert stored["lines"]["bars"][0]["value"] == 0.1235


def test_only_the_results_of_a_page_are_replaced() -> None:
    """The text around the marks stays as it is."""
    page = f"before\n{results.BEGIN}\nold\n{results.END}\nafter\n"
    found = results.written(page, results.merged({}, [finished("lines", 0.1)]))
    assert found.startswith(f"before\n{results.BEGIN}\n\n1 bars: 1 met.")
    assert found.endswith(f"{results.END}\nafter\n")
    assert "old" not in found
    assert re.search(r"^Runs: `lines` quick, 2026-11-26\.$", found, re.MULTILINE)
