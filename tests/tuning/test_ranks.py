"""Ranks that search together: two real processes, and combinations of two trials."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.core.records import Energy
from energy_callbacks.tuning.ranks import together
from energy_callbacks.tuning.search.trial import Trial

SCRIPT = Path(__file__).with_name("ranks_script.py")


Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    """The results of two ranks in each case; both continue and end."""
    folder = tmp_path_factory.mktemp("ranks")
    cases = ("unequal", "broken", "options", "global")
    subprocess.run([sys.executable, str(SCRIPT), str(folder), *cases], check=True, timeout=600)
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


def test_ranks_with_unequal_memory_agree(ranks: list[Found]) -> None:
    """The rank with less memory decides; both have the same curve."""
    first, second = (rank["unequal"] for rank in ranks)
    assert first["size"] == second["size"] == 24
    assert first["trials"] == second["trials"]
    refused = [trial for trial in first["trials"] if trial["status"] == "out_of_memory"]
    assert refused
    assert all(trial["reason"].startswith("rank 1: MemoryError") for trial in refused)
    assert {trial["ranks"] for trial in first["trials"]} == {2}


@pytest.mark.parametrize("case", ["unequal", "broken", "options", "global"])
def test_ranks_go_on_to_train(ranks: list[Found], case: str) -> None:
    """Also after a search that has failed."""
    assert [rank[case]["trained"] for rank in ranks] == [1.0, 1.0]


def test_a_rank_that_fails_ends_the_search_of_all(ranks: list[Found]) -> None:
    """Its own error propagates there; the other ranks name the rank."""
    first, second = (rank["broken"] for rank in ranks)
    assert second["error"] == "ZeroDivisionError: of the user"
    assert "failed on rank 1: ZeroDivisionError: of the user" in first["error"]


def test_ranks_must_be_asked_the_same(ranks: list[Found]) -> None:
    """Different options would make ranks diverge."""
    for rank in ranks:
        assert "all ranks must give the same options" in rank["options"]["error"]


def test_a_global_batch_is_that_of_all_ranks(ranks: list[Found]) -> None:
    """48 samples per step are 24 on each rank."""
    for rank in ranks:
        trials = rank["global"]["trials"]
        assert {one["size"] * one["accumulation"] * one["ranks"] for one in trials} == {48}


def trial(steps=10, duration_s=1.0, energy_j=100.0, peak_bytes=50, **more) -> Trial:
    """Return a trial of one rank."""
    energy = Energy(energy_j=energy_j, stderr_j=3.0, edge_j=4.0, method="counter", coverage=1.0)
    return Trial(
        size=8, steps=steps, duration_s=duration_s, energy=energy, peak_bytes=peak_bytes, **more
    )


def test_the_slowest_sets_the_pace() -> None:
    """10 steps/s on one rank and 5 on the other are 5; joules per step add up."""
    both = together([(trial(), None), (trial(steps=20, duration_s=4.0, energy_j=600.0), None)])
    assert both.samples_per_s == pytest.approx(2 * 8 * 5.0)
    assert both.energy.energy_j == pytest.approx(20 * (10.0 + 30.0))
    assert both.energy.stderr_j == pytest.approx((6.0**2 + 3.0**2) ** 0.5)
    assert both.energy.edge_j == pytest.approx(8.0 + 4.0)
    assert both.j_per_sample == pytest.approx(40.0 / 16)


def test_what_is_left_free_is_that_of_the_fullest() -> None:
    """80 of 100 leaves 20 free; 30 of 40 leaves 10, which is the minimum."""
    both = together([(trial(peak_bytes=80), 100), (trial(peak_bytes=30), 40)])
    assert both.peak_bytes == 30
    fuller = together([(trial(peak_bytes=95), 100), (trial(peak_bytes=30), 40)])
    assert fuller.peak_bytes == 35


def test_a_host_is_measured_by_one_of_its_ranks() -> None:
    """Only one rank knows the energy of a host; unknown energy of a GPU makes the sum unknown."""
    known, unknown = trial(scope="host"), trial(scope="host", energy_j=None)
    assert together([(known, None), (unknown, None)]).energy.energy_j == pytest.approx(100.0)
    assert together([(trial(), None), (unknown, None)]).energy.energy_j is None


def test_an_unknown_gpu_makes_the_sum_unknown() -> None:
    """The energy of one of two ranks would be half of the truth: 0.625 instead of 1.25 J/sample."""
    both = together([(trial(), None), (trial(energy_j=None), None)])
    assert both.j_per_sample is None
