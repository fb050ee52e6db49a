"""Missed bars of benchmarks fail, or are listed in ``known_misses.toml``; a page shows all bars."""

import json
import re
import sys
import tomllib
from argparse import Namespace
from pathlib import Path

import pytest

from tests.benchmarks import __main__ as runner
from tests.benchmarks import bars, results
from tests.benchmarks.bars import Bar

LISTED = """
["speed --quick"]
"slow" = { value = 12.5, reason = "too few runs" }
"low" = { value = 0.75, reason = "as the sensor is" }
"time" = { value = 3.0, reason = "two shared cores", on_slow_machines = true }
"""


@pytest.fixture
def listed(monkeypatch, tmp_path) -> None:
    """A list with a miss above its limit, and one below."""
    file = tmp_path / "known_misses.toml"
    file.write_text(LISTED, encoding="utf-8")
    monkeypatch.setattr(bars, "KNOWN_MISSES", file)


def finished(*found: Bar, is_quick: bool = True, file: Path | None = None) -> int:
    """The exit status of the benchmark ``speed``."""
    return bars.finish("speed", Namespace(quick=is_quick, json=file), found, rows=[1])


@pytest.mark.parametrize(
    ("value", "is_met"),
    [(1.0, True), (2.0, True), (0.9, False), (2.1, False), (float("nan"), False)],
)
def test_bar_is_met_within_its_limits(value, is_met):
    """The limits themselves meet the bar; NaN does not."""
    assert Bar(name="", value=value, at_least=1.0, at_most=2.0).is_met == is_met


def test_nan_meets_no_bar():
    """Not even a bar without limits."""
    assert not Bar(name="", value=float("nan")).is_met


def test_miss_that_is_not_listed_fails(listed, capsys):
    """The benchmark exits non-zero and prints the miss."""
    assert finished(Bar(name="fast", value=3.0, at_most=2.0)) == 1
    assert "fast: 3, at most 2: MISSED" in capsys.readouterr().out


def test_miss_of_another_run_is_not_listed(listed):
    """A miss listed for quick runs is not allowed in a full run."""
    assert finished(Bar(name="slow", value=12.0, at_most=10.0), is_quick=False) == 1


@pytest.mark.parametrize(
    "bar", [Bar(name="slow", value=12.0, at_most=10.0), Bar(name="low", value=0.8, at_least=0.9)]
)
def test_listed_miss_passes_and_is_shown(listed, capsys, bar):
    """The output gives the listed reason."""
    assert finished(bar) == 0
    said = capsys.readouterr().out
    assert f"{bar.name}: {bar.value:g}" in said
    assert "known miss (listed" in said
    assert "bars: 1 known miss" in said


@pytest.mark.parametrize(("value", "status"), [(1.9, 0), (2.9, 0), (3.1, 1)])
def test_time_that_slow_machines_miss_may_be_met(listed, value, status):
    """Such a bar may be met, but not be missed by more than listed."""
    assert finished(Bar(name="time", value=value, at_most=2.0)) == status


@pytest.mark.parametrize(
    "bar", [Bar(name="slow", value=13.0, at_most=10.0), Bar(name="low", value=0.7, at_least=0.9)]
)
def test_miss_that_is_worse_than_listed_fails(listed, capsys, bar):
    """A value may be off by the listed amount at most."""
    assert finished(bar) == 1
    assert "WORSE THAN LISTED" in capsys.readouterr().out


def test_listed_bar_that_is_met_fails(listed, capsys):
    """The benchmark fails until the entry is removed."""
    assert finished(Bar(name="slow", value=9.0, at_most=10.0)) == 1
    assert "MET, BUT LISTED" in capsys.readouterr().out


def test_bar_that_is_not_judged_fails_nothing(listed, capsys):
    """The table counts it as not judged, not as met."""
    assert finished(Bar(name="fast", value=3.0, at_most=2.0, is_judged=False)) == 0
    said = capsys.readouterr().out
    assert "bars: 1 not judged" in said
    assert "listed, not measured: slow" in said


def test_figures_are_written_with_the_verdicts(listed, tmp_path):
    """The JSON file has figures and verdicts."""
    file = tmp_path / "figures.json"
    finished(Bar(name="fast", value=1.0, at_most=2.0), file=file)
    found = json.loads(file.read_text(encoding="utf-8"))
    assert found["rows"] == [1]
    assert [(bar["name"], bar["value"], bar["verdict"]) for bar in found["bars"]] == [
        ("fast", 1.0, "met")
    ]


def test_every_listed_miss_has_its_reason():
    """Every entry belongs to an existing benchmark."""
    runs = tomllib.loads(bars.KNOWN_MISSES.read_text(encoding="utf-8"))
    for run in runs:
        assert run.removesuffix(" --quick") in runner.BENCHMARKS
        assert all(miss.reason for miss in bars.known_misses(run).values())


def with_bars() -> dict[str, str]:
    """Return the source of each module and each package that has bars."""
    folder = Path(runner.__file__).parent
    names = {path.stem: path for path in folder.glob("*.py")}
    names |= {path.parent.name: path for path in folder.glob("*/__main__.py")}
    texts = {name: path.read_text(encoding="utf-8") for name, path in names.items()}
    return {name: text for name, text in texts.items() if "bars.finish(" in text}


def test_every_benchmark_is_run():
    """Every module with a ``main`` that takes ``--quick`` is run."""
    texts = with_bars()
    assert sorted(texts) == list(runner.BENCHMARKS)
    for name in runner.WITH_PEERS:
        assert '"--peers"' in texts[name]


FAKES = {
    "good": "bars.finish('good', told, [bars.Bar(name='a', value=1, at_most=2)])",
    "bad": "bars.finish('bad', told, [bars.Bar(name='a', value=3, at_most=2)])",
    "absent": "bars.skip(told, 'needs a GPU')",
    "broken": "1 / 0",
}
FAKE = """
from tests.benchmarks import bars, results
told = bars.parser("").parse_args()
raise SystemExit({})
"""


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    """Four benchmarks with different outcomes; ``run`` starts them by their file."""
    for name, text in FAKES.items():
        (tmp_path / f"{name}.py").write_text(FAKE.format(text), encoding="utf-8")
    monkeypatch.setattr(runner, "BENCHMARKS", tuple(FAKES))
    monkeypatch.setattr(
        runner, "command", lambda name: [sys.executable, str(tmp_path / f"{name}.py")]
    )
    monkeypatch.setenv("PYTHONPATH", str(runner.ROOT), prepend=":")


def test_all_benchmarks_end_in_one_table(fakes, capfd, tmp_path):
    """One that fails or breaks does not stop the others, and sets the exit status."""
    out = tmp_path / "all.json"
    assert runner.main(["--quick", "--json", str(out)]) == 1
    table = capfd.readouterr().out.split("benchmark ")[-1].splitlines()
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [line.split()[2:4] for line in table[1:3]] == [["1", "0"], ["0", "1"]]
    assert [one["code"] for one in found] == [0, 1, bars.SKIPPED, 1]
    assert "passed" in table[1]
    assert "FAILED" in table[2]
    assert "skipped: needs a GPU" in table[3]
    assert "FAILED: no figures" in table[4]


def test_named_benchmarks_alone_are_run(fakes, capfd):
    """Benchmarks that are not named are skipped and fail nothing."""
    assert runner.main(["good", "absent"]) == 0
    assert "== bad" not in capfd.readouterr().out


def test_unknown_benchmark_is_refused(capsys):
    """The error comes before anything is measured."""
    with pytest.raises(SystemExit, match="2"):
        runner.main(["no_such"])
    assert "no such benchmark: no_such" in capsys.readouterr().err


def test_peers_and_the_fake_card_are_for_those_that_know_them():
    """``overhead --quick`` gets ``--fake``; benchmarks that compare tools get ``--peers``."""
    assert runner.options("overhead", is_quick=True, peers="python") == [
        *("--quick", "--fake", "--peers", "python")
    ]
    assert runner.options("overhead", is_quick=False, peers=None) == []
    assert runner.options("tuner", is_quick=True, peers="python") == ["--quick"]


@pytest.mark.parametrize(
    ("is_quick", "values", "found"),
    [
        (True, {True: 1.0}, 1.0),
        (True, {True: 3.0, False: 1.5}, 1.5),
        (True, {True: 3.0, False: 4.0}, 4.0),
        (False, {False: 3.0}, 3.0),
    ],
)
def test_a_quick_miss_is_decided_by_one_full_run(
    is_quick: bool, values: dict[bool, float], found: float
) -> None:
    """A quick run that meets its bar is not repeated, and a full run never is."""
    asked: list[bool] = []

    def measure(is_short: bool) -> float:
        asked.append(is_short)
        return values[is_short]

    assert bars.decided(measure, lambda value: value <= 2.0, is_quick=is_quick) == found
    assert asked == list(values)


def outcome(name: str, **figures: object) -> dict[str, object]:
    """Return an entry of the list that ``python -m tests.benchmarks --json`` writes."""
    return {"name": name, "seconds": 1.0, "code": 0, "figures": figures}


def with_bar(name: str, value: float, *, verdict: str = "met") -> dict[str, object]:
    """Return the outcome of a quick run with one bar of at most 0.5."""
    bar = {"name": "a | b", "value": value, "at_least": None, "at_most": 0.5, "verdict": verdict}
    return outcome(name, bars=[bar], is_quick=True, date="2026-11-26", rows=[1])


def test_page_shows_the_stored_results() -> None:
    """``python -m tests.benchmarks.results`` changes nothing."""
    page = results.PAGE.read_text(encoding="utf-8")
    assert results.written(page, results.load()) == page


def test_every_benchmark_has_results() -> None:
    """Every module that has bars is in ``results.json``, in the order of the runner."""
    stored = results.load()
    assert set(stored) == set(with_bars())
    assert all(one["bars"] for one in stored.values())
    assert list(stored) == list(runner.BENCHMARKS)


def test_newer_results_replace_those_of_their_benchmark() -> None:
    """Results of other benchmarks, and of those that were skipped, are kept."""
    stored = results.merged({}, [with_bar("lines", 0.1), with_bar("page", 0.2)])
    newer = [with_bar("lines", 0.3), outcome("page", skipped="no browser")]
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
    stored = results.merged({}, [with_bar("lines", float("nan"), verdict="MISSED")])
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored
    assert "| lines | a \\| b | at most 0.5 | not known | **MISSED** |" in results.section(stored)


def test_numbers_have_four_digits() -> None:
    """Results of the same run on another machine differ in fewer lines."""
    stored = results.merged({}, [with_bar("lines", 0.123456)])
    assert stored["lines"]["bars"][0]["value"] == 0.1235


def test_only_the_results_of_a_page_are_replaced() -> None:
    """The text around the marks stays as it is."""
    page = f"before\n{results.BEGIN}\nold\n{results.END}\nafter\n"
    found = results.written(page, results.merged({}, [with_bar("lines", 0.1)]))
    assert found.startswith(f"before\n{results.BEGIN}\n\n1 bars: 1 met.")
    assert found.endswith(f"{results.END}\nafter\n")
    assert "old" not in found
    assert re.search(r"^Runs: `lines` quick, 2026-11-26\.$", found, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "codes"), [("hooks", (1, 0)), ("hooks", (1, 1)), ("hooks", (0,)), ("tuner", (1,))]
)
def test_timed_benchmark_that_misses_runs_once_more(monkeypatch, capsys, name, codes):
    """The second run counts; a benchmark without real time has only one."""
    left = list(codes)

    def run(name, options):
        return runner.Outcome(name=name, seconds=1.0, code=left.pop(0), figures={"bars": []})

    monkeypatch.setattr(runner, "run", run)
    assert runner.main([name, "--quick"]) == codes[-1]
    assert not left


def test_benchmark_that_fails_without_figures_is_not_repeated(monkeypatch, capsys):
    """It has not measured anything."""
    left = [1, 0]
    monkeypatch.setattr(
        runner, "run", lambda name, _: runner.Outcome(name=name, seconds=1.0, code=left.pop(0))
    )
    assert runner.main(["hooks"]) == 1
