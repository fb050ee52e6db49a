"""Tests of the sums of a profile, with statistics written by hand."""

import cProfile
import pstats
import time

import pytest

from energy_callbacks.profiling.host.calls import Calls

MAIN, LOAD, STEP, READ = (("/p/train.py", n, name) for n, name in enumerate(
    ("main", "load", "step", "read"), start=1
))  # fmt: skip


def stats():
    """``main`` calls ``load`` (3 s) and ``step`` (5 s); both call ``read``: 2 s and 1 s."""
    return {
        MAIN: (1, 1, 2.0, 10.0, {}),
        LOAD: (4, 4, 1.0, 3.0, {MAIN: (4, 4, 1.0, 3.0)}),
        STEP: (4, 4, 4.0, 5.0, {MAIN: (4, 4, 4.0, 5.0)}),
        READ: (8, 8, 3.0, 3.0, {LOAD: (4, 4, 2.0, 2.0), STEP: (4, 4, 1.0, 1.0)}),
    }


def test_own_times_sum_to_the_whole():
    """Own times of 2, 1, 4 and 3 s sum to the 10 s of ``main``, in descending order."""
    calls = Calls(stats())
    assert calls.own_s == 10.0
    assert [one["own_s"] for one in calls.top()] == [4.0, 3.0, 2.0, 1.0]


def test_the_tree_has_each_function_below_its_callers():
    """``read`` is below both callers, with its time in each, inside their rectangles."""
    nodes = Calls(stats()).tree()
    found = {(node["name"].split()[0], node["depth"]): [] for node in nodes}
    for node in nodes:
        found[node["name"].split()[0], node["depth"]].append((node["start_s"], node["width_s"]))
    assert found == {
        ("main", 0): [(0.0, 10.0)],
        ("step", 1): [(0.0, 5.0)],
        ("load", 1): [(5.0, 3.0)],
        ("read", 2): [(0.0, 1.0), (5.0, 2.0)],
    }


def test_a_function_called_from_two_places_keeps_its_proportions():
    """If 1 of 3 s of ``load`` has another caller, ``read`` below it is divided alike."""
    told = stats()
    told[LOAD] = (4, 4, 1.0, 3.0, {MAIN: (3, 3, 0.7, 2.0)})
    widths = {
        node["depth"]: node["width_s"]
        for node in Calls(told).tree()
        if node["name"].startswith("load")
    }
    assert widths == {0: 1.0, 1: 2.0}
    reads = [(n["depth"], n["width_s"]) for n in Calls(told).tree() if n["name"][:4] == "read"]
    assert (1, pytest.approx(2.0 / 3.0)) in reads
    assert (2, pytest.approx(4.0 / 3.0)) in reads


def test_recursion_ends():
    """A function that calls itself is one rectangle, as wide as its outermost call."""
    told = {MAIN: (1, 100, 2.0, 2.0, {MAIN: (99, 99, 1.9, 1.9)})}
    assert [(n["depth"], n["width_s"]) for n in Calls(told).tree()] == [(0, 2.0)]
    around = {
        MAIN: (1, 5, 1.0, 2.0, {STEP: (4, 4, 0.5, 0.9)}),
        STEP: (1, 5, 1.0, 1.9, {MAIN: (5, 5, 1.0, 1.9)}),
    }
    assert len(Calls(around).tree()) < 10


def test_a_real_profile():
    """A sleep of 0.1 s is the own time of ``time.sleep``, and below the function that sleeps."""
    profile, start_s = cProfile.Profile(), time.perf_counter()
    profile.runcall(sleeper)
    passed_s = time.perf_counter() - start_s
    calls = Calls(pstats.Stats(profile).stats)
    top, *_ = calls.top()
    assert top["name"] == "time.sleep (built-in)"
    assert 0.0999 <= top["own_s"] <= passed_s
    assert [node["name"].split()[0] for node in calls.tree()[:2]] == ["sleeper", "time.sleep"]


def sleeper():
    """Sleeps."""
    time.sleep(0.1)
