"""The cheapest configuration and its significance, from run folders of known energy."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.compare import page, plots
from energy_callbacks.matrix import summary
from energy_callbacks.matrix.attempts import Results, write_json
from energy_callbacks.matrix.plan import MatrixPlan
from energy_callbacks.matrix.rows import read_table
from energy_callbacks.matrix.verdict import verdict
from tests.report.journals import Attempt, Stretch, write

TRAIN_S = 60.0
# By repeat: much smaller than the differences to detect, much larger than the others.
NOISE = (0.0, 0.02, -0.02, 0.01, -0.01, 0.0)
ACCURACY = [(10.0 * i, {"val_accuracy": 1.0 - 0.5**i}, 100 * i, float(i)) for i in range(1, 6)]


def matrix(folder: Path, power_w: Mapping[str, float], **changed: Any) -> dict[str, Any]:
    """Run a matrix in which each configuration has its own power; return ``matrix.json``."""
    usual: dict[str, Any] = {
        "name": "m", "command": "x {opt}", "parameters": {"opt": list(power_w)},
        "repeats": len(NOISE),
    }  # fmt: skip
    plan = MatrixPlan(**(usual | changed))
    results = Results(folder=folder, working_folder=folder)
    for place, job in enumerate(plan.jobs()):
        own = 2 * list(power_w).index(job.parameters["opt"])  # the same scatter in another order
        watt = power_w[job.parameters["opt"]] * (1.0 + NOISE[(job.repeat + own) % len(NOISE)])
        if watt < 0.0:
            results.end(results.begin(job), 3)
            continue
        train = Stretch(
            phase="train", duration_s=TRAIN_S, power_w={"gpu0": watt - 100.0, "cpu0": 100.0}
        )
        made = Attempt(
            stretches=(train,), run_id=f"run{place}", unix_s=1.79e9 + 100.0 * place,
            metrics=ACCURACY,
        )  # fmt: skip
        run = results.begin(job)
        write(run, made)
        results.end(run, 0)
        (run / "job.json").write_text(
            json.dumps(json.loads((run / "job.json").read_text()) | {"started_unix_s": place})
        )
        write_json(run / "outcome.json", {"exit_code": 0, "ended_unix_s": place + 0.5})
    assert summary.conclude(plan, results) == int(min(power_w.values()) < 0.0)
    found: dict[str, Any] = json.loads((folder / "matrix.json").read_text(encoding="utf-8"))
    page = (folder / "matrix.html").read_text(encoding="utf-8")
    assert all(name in page for name in (*power_w, "peak memory", "mean memory"))
    return found


def test_what_is_cheaper_beyond_chance_is_real(tmp_path: Path) -> None:
    """At 300, 400 and 500 W for a minute the order and the joules are known."""
    found = matrix(tmp_path, {"mid": 400.0, "low": 300.0, "high": 500.0})
    assert found["is_real"] is True
    assert [one["parameters"]["opt"] for one in found["configurations"]] == ["low", "mid", "high"]
    for one, power_w in zip(found["configurations"], (300.0, 400.0, 500.0), strict=True):
        assert one["energy_j"] == pytest.approx(power_w * TRAIN_S, rel=0.02)
        assert len(one["energies_j"]) == len(NOISE)
        assert 40e9 < one["mean_memory_bytes"] < one["peak_memory_bytes"]
    assert found["answer"].startswith(
        "low uses the least energy, 5.00 Wh per run. The difference is significant: "
    )
    assert "each other one uses more energy, the next mid (+33.3 %" in found["answer"]


def test_the_energy_per_sample_of_short_runs_is_not_known(tmp_path: Path) -> None:
    """As that of the run: its error is larger than half of it."""
    plan = MatrixPlan(name="m", command="x {opt}", parameters={"opt": ["a"]}, repeats=1)
    results = Results(folder=tmp_path, working_folder=tmp_path)
    (job,) = plan.jobs()
    run = results.begin(job)
    write(run, Attempt(edge_j=30_000.0))
    results.end(run, 0)
    (row,) = read_table(plan, results).rows
    assert (row.energy_j, row.j_per_sample) == (None, None)


def test_names_are_printed_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A value that is also the name of an emoji is not replaced by it."""
    matrix(tmp_path, {":100:": 300.0, "b": 400.0}, repeats=2)
    assert ":100: uses the least energy" in capsys.readouterr().out.replace("\n", " ")


def test_what_chance_may_have_done_is_not(tmp_path: Path) -> None:
    """300.1 W and 300 W are not distinguished within 2 % of scatter; 500 W is more."""
    found = matrix(tmp_path, {"a": 300.1, "b": 300.0, "c": 500.0})
    assert found["is_real"] is False
    assert "b uses the least energy" in found["answer"]
    assert "It is not resolved whether it uses less than a (+0.03 %" in found["answer"]
    assert "this number of runs can detect changes of" in found["answer"]
    assert "It uses significantly less than c (+66.7 %" in found["answer"]


def test_the_cheapest_to_a_metric(tmp_path: Path) -> None:
    """All reach the target in 50 of 60 seconds: costs are the energy until then."""
    found = matrix(tmp_path, {"a": 400.0, "b": 300.0}, metric="val_accuracy")
    assert found["ranked_by"] == "energy_to_target_j"
    assert found["target"] == pytest.approx(1.0 - 0.5**5)
    best = found["configurations"][0]
    assert best["cost_j"] == pytest.approx(300.0 * 50.0, rel=0.03)
    assert best["metric"] == pytest.approx(1.0 - 0.5**5)
    assert "to reach val_accuracy 0.9688" in found["answer"]


@pytest.mark.charts
def test_the_page_has_a_picture_of_all_runs_and_those_of_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One chart of the comparison is enough to see that its charts are included."""
    monkeypatch.setattr(page, "CHARTS", plots.CHARTS[:1])
    monkeypatch.setattr(plots, "CHARTS", ())
    matrix(tmp_path, {"a": 300.0, "b": 400.0}, repeats=2)
    text = (tmp_path / "matrix.html").read_text(encoding="utf-8")
    assert re.search(r"<h2>Each run</h2>\s*<svg", text)
    assert re.search(r"<h2>What changes</h2>\s*<div class=.wide.><svg", text)


@pytest.mark.charts
def test_runs_whose_energy_nobody_knows_have_no_picture(tmp_path: Path) -> None:
    """If no energy is known, there is no chart."""
    matrix(tmp_path, {"a": -1.0})
    assert "<svg" not in (tmp_path / "matrix.html").read_text(encoding="utf-8")


def test_a_baseline_that_is_named(tmp_path: Path) -> None:
    """The comparison is with the baseline; the answer compares the baseline with the cheapest."""
    found = matrix(tmp_path, {"a": 300.0, "b": 400.0}, baseline={"opt": "b"})
    assert "The baseline b uses significantly more (+33.3 %" in found["answer"]
    kept = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    assert [group["name"] for group in kept["groups"]] == ["b", "a"]


def test_a_configuration_that_never_ended_well(tmp_path: Path) -> None:
    """It is in the table without figures, and the others are compared."""
    found = matrix(tmp_path, {"a": 300.0, "b": -1.0, "c": 400.0})
    broken = found["configurations"][-1]
    assert broken["parameters"] == {"opt": "b"}
    assert (broken["energy_j"], broken["failed"], broken["finished"]) == (None, len(NOISE), 0)
    # The cheapest of two known configurations may not be the cheapest of three.
    assert found["is_real"] is None
    assert "For 1 of 3 configurations no result is known: b." in found["answer"]
    assert "exit code 3" in (tmp_path / "matrix.html").read_text(encoding="utf-8")


def test_one_configuration_is_not_compared(tmp_path: Path) -> None:
    """Its energy is still in the answer."""
    found = matrix(tmp_path, {"a": 300.0})
    assert (found["is_real"], found["ranked_by"]) == (None, None)
    assert found["answer"] == "There are no two configurations to compare. a: 5.00 Wh."


@pytest.mark.parametrize("is_in_a_short_run", [False, True])
def test_a_metric_without_a_measured_report(tmp_path: Path, *, is_in_a_short_run: bool) -> None:
    """The energies of the others are compared, although no report has metrics."""
    options = ["a", "b", "short"]
    plan = MatrixPlan(
        name="m", command="x {opt}", parameters={"opt": options}, repeats=1, metric="val_accuracy"
    )
    results = Results(folder=tmp_path, working_folder=tmp_path)
    for place, job in enumerate(plan.jobs()):
        run, is_short = results.begin(job), job.parameters["opt"] == "short"
        metrics = ACCURACY if is_short and is_in_a_short_run else ()
        edge_j = 30_000.0 if is_short else 0.0
        write(run, Attempt(run_id=f"r{place}", edge_j=edge_j, metrics=metrics))
        results.end(run, 0)
    found = verdict(plan, read_table(plan, results))
    assert (found.quantity, set(found.costs_j)) == ("energy_j", {"a", "b"})


def test_a_metric_that_nobody_has(tmp_path: Path) -> None:
    """The note lists the metrics of the reports, and energies of whole runs are compared."""
    found = matrix(tmp_path, {"a": 300.0, "b": 400.0}, metric="val_f1", repeats=3)
    assert found["ranked_by"] == "energy_j"
    assert any("No report has the metric 'val_f1'; they have val_accuracy" in note
               for note in found["notes"])  # fmt: skip
    assert any("is odd" in note for note in found["notes"])
