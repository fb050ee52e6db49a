"""The summary over seeds and tasks."""

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from energy_callbacks.inference.bench.report import summary as module
from energy_callbacks.inference.bench.report import tables
from energy_callbacks.inference.bench.report.figures import Figures
from energy_callbacks.inference.bench.report.summary import Finished, mean_of_seeds, summary
from energy_callbacks.inference.records import Source
from tests.inference.bench import stand_ins


def figures(share: float | None, above: float = 0.0) -> Figures:
    """Return figures of a run."""
    return Figures(
        throughput_per_s=100.0,
        whole_throughput_per_s=90.0,
        above_share=above,
        overshoot_w=1.0,
        excess_j=0.5,
        settling_s=3.0,
        j_per_request=0.05,
        optimum_share=share,
    )


def finished(
    number: int, algorithm: str, shares: list[float | None], source: Source = "simulated"
) -> Finished:
    """Return the results of an algorithm on a task."""
    return Finished(
        task=stand_ins.task(number),
        algorithm=algorithm,
        source=source,
        by_seed={seed: figures(share) for seed, share in enumerate(shares)},
    )


def test_the_interval_contains_the_mean_of_many_seeds() -> None:
    """In 95 of 100 samples of five seeds, within the error of counting."""
    rng = np.random.default_rng(5)
    contained = 0
    for _ in range(60):
        one = mean_of_seeds(rng.normal(0.9, 0.02, size=5).tolist())
        assert one.low is not None
        assert one.high is not None
        contained += one.low <= 0.9 <= one.high
    assert contained >= 53


def test_one_seed_has_no_interval() -> None:
    """Its spread is not known."""
    one = mean_of_seeds([0.9])
    assert (one.value, one.low, one.high) == (0.9, None, None)


def test_an_unknown_seed_is_not_left_out() -> None:
    """The mean of the others would be too good: of a run that has not settled, for example."""
    assert mean_of_seeds([3.0, None, 3.0]) == module.MeanOfSeeds(value=None, unknown=1)


def test_overall_compares_the_same_tasks() -> None:
    """A task that one algorithm has not finished with every seed does not count."""
    results = [
        *(finished(1, "a", [0.8, 0.9]), finished(1, "b", [0.5, 0.5])),
        *(finished(2, "a", [0.6, 0.5]), finished(2, "b", [0.7, 0.7])),
        *(finished(3, "a", [0.1, 0.1]), finished(3, "b", [0.1])),
        finished(4, "a", [0.1, 0.1]),
    ]
    first, second = summary(results).overall
    assert (first.algorithm, first.tasks, second.tasks) == ("a", 2, 2)
    assert first.figures["optimum_share"].value == pytest.approx((0.8 + 0.6 + 0.9 + 0.5) / 4)
    assert second.figures["optimum_share"].value == pytest.approx(0.6)


def test_csv_and_json_have_the_same_figures() -> None:
    """Unknown values are empty and null, not zero."""
    found = summary([finished(1, "a", [0.8, 0.9]), finished(2, "a", [None, None])])
    lines = list(csv.DictReader(io.StringIO(module.as_csv(found))))
    records = json.loads(module.as_json(found))["tasks"]
    for line, record in zip(lines, records, strict=True):
        for name, one in record["figures"].items():
            for column, key in ((name, "value"), (f"{name}_low", "low"), (f"{name}_high", "high")):
                assert line[column] == ("" if one[key] is None else str(one[key]))
    assert lines[0]["optimum_share"] == str((0.8 + 0.9) / 2)
    assert lines[1]["optimum_share"] == ""
    assert (lines[0]["task"], lines[0]["source"], lines[0]["caps_w"]) == (
        "1",
        "simulated",
        "[100.0]",
    )


def test_the_text_says_what_is_simulated_and_unknown() -> None:
    """On a real GPU, the share of the optimum is stated to be unknown."""
    shown = tables.text(summary([finished(1, "a", [0.8])]))
    assert "task 1: m (d) on steady, 100 W, simulated" in shown
    assert "80.0 %" in shown
    assert tables.OPTIMUM in shown
    shown = tables.text(summary([finished(1, "a", [None], source="measured")]))
    assert tables.NO_OPTIMUM in shown
    assert "simulated" not in shown
    assert " -  " in shown


def test_failures_are_shown() -> None:
    """The message and the number of failed runs are in the table."""
    failed = Finished(
        task=stand_ins.task(1),
        algorithm="a",
        source="simulated",
        by_seed={},
        errors=("no power limit",) * 2,
    )
    shown = tables.text(summary([failed, finished(1, "b", [0.8, 0.8])]))
    assert "0, 2 failed" in shown
    assert shown.count("a failed: no power limit") == 1


def test_cells() -> None:
    """Shares can exceed 100 %; a run that has not settled is named; equal ends are left out."""
    results = [
        replace(
            finished(1, "a", []),
            by_seed={
                seed: replace(figures(share), settling_s=None)
                for seed, share in enumerate([1.25, 1.45])
            },
        )
    ]
    (row,) = summary(results).rows
    shown = dict(zip(tables.heads(), tables.cells(row), strict=True))
    assert re.fullmatch(r"135\.0 % \[\d+\.\d %, \d+\.\d %\]", shown["of optimum"])
    assert shown["settling"] == "not settled"
    assert (shown["samples/s"], shown["seeds"]) == ("100", "2")
