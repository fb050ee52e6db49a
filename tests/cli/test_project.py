"""Tests of ``energy-callbacks project`` through its command line."""

import json
import re
import shutil

import pytest

from energy_callbacks.cli import main
from energy_callbacks.compare import compare
from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.compare.without_charts import no_charts_of_comparisons  # noqa: F401 - likewise
from tests.report.journals import GERMANY, Attempt, Stretch, write

# 540 W for 100 s is 15 Wh.
GPU_W, CPU_W, LENGTH_S = 500.0, 40.0, 100.0


def job(folder, share=1.0, number=0, **facts):
    """Write a run of 15 Wh, or of a share of it; return its folder."""
    power_w = {"gpu0": GPU_W * share, "cpu0": CPU_W * share}
    stretch = Stretch(phase="train", duration_s=LENGTH_S, power_w=power_w)
    defaults = {"run_id": folder.name, "run_name": folder.name, "stretches": (stretch,)}
    defaults |= {"config": {"place": GERMANY}, "unix_s": 1.79e9 + 1000 * number}
    write(folder, Attempt(**(defaults | facts)))
    return folder


@pytest.fixture
def two(tmp_path):
    """Provide a run before and a run after a change that saves 5 %."""
    return str(job(tmp_path / "before")), str(job(tmp_path / "after", 0.95))


@pytest.fixture
def comparison(tmp_path):
    """Provide a comparison of two groups of three repeats, about 5 % apart."""
    runs = {
        name: [job(tmp_path / f"{name}{i}", share * (1 + 0.001 * i), i) for i in range(3)]
        for name, share in (("before", 1.0), ("after", 0.95))
    }
    compare(runs).save(tmp_path / "comparison")
    return tmp_path / "comparison"


def asked(capsys, *arguments):
    """Return the output of ``--json``."""
    assert main(["project", *map(str, arguments), "--jobs-per-day", "1e6", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_known_case(two, capsys):
    """A million jobs of 15 Wh, 5 % less, save 750 kWh and 375 kg a day."""
    found = asked(capsys, *two, "--kg-per-kwh", "0.5")
    assert found["jobs"][0]["per_job"]["energy_kwh"]["value"] == pytest.approx(0.015)
    assert found["saved"]["per_day"]["energy_kwh"]["value"] == pytest.approx(750.0)
    assert found["saved"]["per_day"]["emissions_kg"]["value"] == pytest.approx(375.0)
    assert found["saved"]["per_year"]["emissions_kg"]["value"] == pytest.approx(375.0 * 365)
    assert found["jobs"][0]["per_day"]["gpu_h"]["value"] == pytest.approx(1e8 / 3600)


def test_the_interval_of_a_difference_is_that_of_both_sensors(two, capsys):
    """The errors of both runs, 1 % and 1.96 J for each device, add up in opposite directions."""
    found = asked(capsys, *two)["saved"]["per_day"]["energy_kwh"]
    assert found["low"] < found["value"] < found["high"]
    assert found["high"] - found["value"] == pytest.approx(0.01 * 15_000 * 1.95, rel=0.05)


def test_one_run_a_side_says_so(two, capsys):
    """A note says that two runs do not show how much repeats differ."""
    assert main(["project", *two, "--jobs-per-day", "1e6"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "One run before and one after the change" in out
    assert "do not average out" in out
    assert "750 kWh" in out


def test_place_pue_and_price_are_those_of_the_run_or_given(tmp_path, capsys):
    """Germany and 0.3 come from the run; France, 1.5 and 5 % from the command line."""
    folder = job(tmp_path / "a", config={"place": GERMANY, "pue": 1.1, "price_per_kwh": 0.3})
    own = asked(capsys, folder)
    assert own["fleet"]["intensity"]["place"] == "Germany"
    day = own["jobs"][0]["per_day"]
    assert day["energy_kwh"]["value"] == pytest.approx(15_000 * 1.1)
    assert day["money"]["value"] == pytest.approx(15_000 * 1.1 * 0.3)
    given = asked(capsys, folder, "--country", "FRA", "--pue", 1.5, "--scheduler-overhead", "5%")
    assert given["fleet"]["intensity"]["place"] == "France"
    energy = given["jobs"][0]["per_day"]["energy_kwh"]["value"]
    assert energy == pytest.approx(15_000 * 1.5 * 1.05)
    emitted = given["jobs"][0]["per_day"]["emissions_kg"]
    assert emitted["low"] < emitted["value"] < emitted["high"]
    assert emitted["value"] == pytest.approx(energy * given["fleet"]["intensity"]["kg_per_kwh"])


def test_a_price_has_a_currency(tmp_path, comparison, capsys):
    """It is that of the run or given; without a price it is refused."""
    folder = job(tmp_path / "a", config={"price_per_kwh": 0.3, "currency": "EUR"})
    assert asked(capsys, folder)["fleet"]["currency"] == "EUR"
    assert main(["project", str(folder), "--jobs-per-day", "1", "--currency", "CHF"]) == 0
    told = capsys.readouterr().out
    assert "0.3 CHF per kWh" in told
    assert re.search(r"cost of electricity +a +0.0045 CHF", told)
    for paths in ([job(tmp_path / "b")], [comparison]):
        arguments = ["project", *map(str, paths), "--jobs-per-day", "1", "--currency"]
        assert main([*arguments, "EUR"]) == 2
        assert "currency='EUR' needs a price" in capsys.readouterr().err
        assert main([*arguments, "euro", "--price-per-kwh", "1"]) == 2
        assert "three capital letters" in capsys.readouterr().err


def test_an_unknown_place_is_an_interval(tmp_path, capsys):
    """The value is unknown, and both ends of the range are given."""
    folder = job(tmp_path / "a", config={"place": {"country": None}})
    emitted = asked(capsys, folder)["jobs"][0]["per_day"]["emissions_kg"]
    assert emitted["value"] is None
    assert 0.0 < emitted["low"] < emitted["high"]
    assert main(["project", str(folder), "--jobs-per-day", "10"]) == 0
    assert "location not set" in capsys.readouterr().out


def test_a_comparison_becomes_the_conclusion(comparison, capsys):
    """Savings follow from the ratio of energies and its interval."""
    (change,) = asked(capsys, comparison, "--kg-per-kwh", "0.5")["changes"]
    assert change["name"] == "after"
    ratio, before = change["energy_ratio"], change["before"]["energy_j"]["value"]
    assert ratio["value"] == pytest.approx(0.95)
    saved = change["saved"]["per_day"]
    assert saved["energy_kwh"]["value"] == pytest.approx(1e6 * before * 0.05 / 3.6e6)
    assert saved["energy_kwh"]["low"] == pytest.approx(1e6 * before * (1 - ratio["high"]) / 3.6e6)
    assert saved["emissions_kg"]["value"] == pytest.approx(saved["energy_kwh"]["value"] / 2)


def test_the_conclusion_table_fits_a_terminal(comparison, capsys):
    """The table has a row for each comparison, given as folder or file, in 80 columns."""
    other = shutil.copy(comparison / "comparison.json", comparison / "other.json")
    paths = [str(comparison), str(other)]
    assert main(["project", *paths, "--jobs-per-day", "1e6", "--country", "DEU"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = "improvement  performance impact  energy savings  saving at scale"
    assert lines[2].split() == head.split()
    assert [line[:5] for line in lines].count("after") == 2
    assert any("not resolved" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_markdown(comparison, two, capsys):
    """Each row is one line, also if a cell has several; names cannot end a cell."""
    assert main(["project", str(comparison), "--jobs-per-day", "1e6", "--markdown"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert rows[1] == "|---|---|---|---|"
    assert "<br>" in rows[2]
    assert main(["project", *two, "--jobs-per-day", "1e6", "--markdown"]) == 0
    assert all(line.count("|") == 5 for line in capsys.readouterr().out.splitlines() if "|" in line)


def test_a_name_cannot_speak(tmp_path, capsys):
    """Escape sequences, markup and cell separators in the name of a run are escaped."""
    folder = job(tmp_path / "a", run_name="a\x1b[2J|<b>")
    assert main(["project", str(folder), "--jobs-per-day", "1", "--markdown"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "<b>" not in out
    assert r"\|" in out


def test_a_run_that_is_no_good_example_is_told(tmp_path, capsys):
    """The output says that a run was cut off and that a complete job takes more."""
    folder = job(tmp_path / "a", cut_off_at_s=50.0)
    assert main(["project", str(folder), "--jobs-per-day", "1e6"]) == 0
    assert "a is cut off" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--jobs-per-day", "0"], "jobs per day"),
        (["--jobs-per-day", "1", "--pue", "0.5"], "pue"),
        (["--jobs-per-day", "1", "--country", "Atlantis"], "Atlantis"),
        (["--jobs-per-day", "1", "--kg-per-kwh", "0.4", "--country", "DEU"], "exclude each other"),
        (["--jobs-per-day", "1", "--kg-per-kwh", "-1"], "kg-per-kwh"),
    ],
)
def test_wrong_numbers_end_with_2(two, capsys, extra, words):
    """One line says which argument is wrong."""
    assert main(["project", *two, *extra]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err


def test_wrong_paths(two, comparison, tmp_path, capsys):
    """Three runs, runs mixed with comparisons, and a missing path are refused."""
    jobs = ["--jobs-per-day", "1"]
    assert main(["project", *two, two[0], *jobs]) == 2
    assert "compare repeated runs first" in capsys.readouterr().err
    assert main(["project", two[0], str(comparison), *jobs]) == 2
    assert "cannot be projected together" in capsys.readouterr().err
    assert main(["project", str(tmp_path / "none"), *jobs]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_a_run_without_energy_is_no_job(tmp_path, capsys):
    """A run of unknown energy cannot be projected."""
    assert main(["project", str(job(tmp_path / "a", devices=())), "--jobs-per-day", "1"]) == 2
    assert "is not known" in capsys.readouterr().err


def test_an_overhead_above_the_jobs_energy(two, capsys):
    """The share that is printed is the one that was computed with."""
    assert main(["project", two[0], "--jobs-per-day", "1", "--scheduler-overhead", "5"]) == 0
    assert "scheduler overhead 500 %" in capsys.readouterr().out
