"""What benchmarks say about what they have measured; the measuring itself is theirs to run."""

import threading
import time

import numpy as np
import pytest

from tests.benchmarks import overhead, peers, tools
from tests.benchmarks.loops import Loop
from tests.benchmarks.pairs import change, interleaved
from tests.benchmarks.paused_clock import PausableClock
from tests.benchmarks.peers import PERIODS_S, Row, Window
from tests.benchmarks.tools import MAKERS, OURS


def noisy_pairs(slower: float) -> tuple[np.ndarray, np.ndarray]:
    """200 pairs of step times around 1.6 ms: 5 % of noise, and 5 rounds that were interrupted."""
    dice = np.random.default_rng(3)
    without_s, with_s = 1.6e-3 * np.exp(dice.normal(0.0, 0.05, size=(2, 200)))
    without_s[:5] *= 3.0
    return with_s * (1.0 + slower), without_s


@pytest.mark.parametrize("slower", [0.0, 0.02])
def test_interval_of_pairs_holds_the_true_change(slower):
    """No change and 2 % are found among 5 % of noise and interrupted rounds, within 1 %."""
    found = change(*noisy_pairs(slower))
    assert found.low < slower < found.high
    assert found.high - found.low < 0.025


def test_rounds_run_in_order_abba():
    """With, without, without, with: a drift hits both alike, and half the switches are saved."""
    said: list[str] = []
    loop = Loop(name="", step=lambda: said.append("-"), wait=lambda: None, step_s=1.0)
    switch = {True: "on", False: "off"}
    interleaved(loop, 3, lambda: said.append("+"), lambda is_on: said.append(switch[is_on]))
    assert said == ["on", "+", "off", "-", "-", "on", "+", "+", "off", "-"]


def test_paused_clock_does_nothing():
    """After ``pause`` has returned no job is under way and none begins, until ``resume``."""
    clock, is_busy, turns = PausableClock(), threading.Event(), []

    def job() -> None:
        is_busy.set()
        time.sleep(0.02)
        turns.append(time.monotonic())
        is_busy.clear()

    periodic = clock.every(0.001, job, name="paused")
    assert is_busy.wait(5.0)
    clock.pause()
    done = len(turns)
    assert done
    assert not is_busy.is_set()
    time.sleep(0.1)
    assert len(turns) == done
    clock.resume()
    assert is_busy.wait(5.0)
    periodic.ask_to_stop()
    assert periodic.wait(5.0)


def rows(errors: dict[str, float]) -> list[Row]:
    """One window of each duration, each wrong by so much of its truth."""
    return [
        Row(
            tool=tool,
            period_s=period_s,
            windows=tuple(
                Window(duration_s=duration_s, true_j=10.0, reported_j=10.0 * (1.0 + error))
                for duration_s in peers.DURATIONS_S
            ),
        )
        for tool, error in errors.items()
        for period_s in PERIODS_S
    ]


def test_peer_must_be_as_many_times_worse_as_the_bar():
    """Four times worse meets the bar of 3, and misses those of 5, 6 and 10."""
    found = peers.verdicts(rows({OURS: 0.01, "Zeus": -0.04}))
    assert [v.times_worse for v in found] == pytest.approx([4.0] * 4)
    assert [v.bar for v in found if v.is_met] == [3.0]


def test_unknown_energy_is_no_victory():
    """An energy that is no number meets no bar."""
    assert not any(v.is_met for v in peers.verdicts(rows({OURS: float("nan"), "Zeus": 1.0})))


@pytest.mark.parametrize(("arguments", "code"), [([], 1), (["--without-peers"], 0)])
def test_bar_is_not_shown_without_the_peer(monkeypatch, capsys, arguments, code):
    """A peer that is not installed is named, and the benchmark fails unless it may be missing."""
    monkeypatch.setattr(peers, "is_installed", lambda tool: tool == OURS)
    found = dict(zip(PERIODS_S, rows({OURS: 0.01}), strict=True))
    monkeypatch.setattr(peers, "measure", lambda tool, period_s, windows: found[period_s])
    monkeypatch.setattr("sys.argv", ["peers", *arguments])
    assert peers.main() == code
    said = capsys.readouterr().out
    assert said.count("not installed, its bars are not shown") == len(MAKERS) - 1
    assert "NOT SHOWN" in said


class Blind:
    """A tool that does not find the card."""

    def __init__(self, *, sync: bool) -> None:
        self.windows = 0

    def begin(self) -> None:
        self.windows += 1

    def end(self) -> None:
        pass

    def close(self) -> list[float]:
        return [0.0] * self.windows


def test_tool_that_sees_no_card_is_no_peer(monkeypatch):
    """CodeCarbon without nvidia-smi reads 0 J and says nothing: that is not compared with."""
    monkeypatch.setitem(tools.MAKERS, "blind", ("energy_callbacks", Blind))
    with pytest.raises(RuntimeError, match="0 J in every window"):
        tools.measure("blind", [(0.0, 0.001), (0.0, 0.001)])


def test_peer_that_fails_takes_no_other_figures_with_it(monkeypatch):
    """What was measured of ours on a GPU is printed, whatever becomes of the peers."""
    monkeypatch.setitem(tools.MAKERS, "Zeus", ("energy_callbacks", Blind))
    monkeypatch.setitem(tools.MAKERS, "CodeCarbon task", ("no_such_package", Blind))
    loop = Loop(name="loop", step=lambda: None, wait=lambda: None, step_s=0.01)
    unknown: dict[str, str] = {}
    assert not list(overhead.measure_peers((loop, loop), 1, unknown, is_fake=True))
    assert "0 J" in unknown["Zeus"]
    assert unknown["CodeCarbon task"] == "not installed"


def test_plan_has_as_many_windows_of_each_duration():
    """Every tool gets the same windows, whose pauses keep no step."""
    plan = peers.plan(40)
    durations_s = [duration_s for _, duration_s in plan]
    assert {d: durations_s.count(d) for d in durations_s} == {0.05: 40, 0.2: 40}
    assert plan == peers.plan(40)
    assert len({pause_s for pause_s, _ in plan}) == 80


def test_bar_that_is_not_judged_is_not_met_either():
    """Too few rounds say nothing about a small change, in neither direction."""
    words = [
        overhead.Bar(name="", value=value, limit=1.0, is_judged=is_judged).verdict
        for value, is_judged in [(0.5, True), (1.5, True), (0.5, False), (float("nan"), True)]
    ]
    assert words == ["met", "MISSED", "not judged", "MISSED"]


def test_threads_of_ours_are_found_and_their_time_is_counted():
    """A thread that calculates takes a share of a core, under its own name."""
    stopping = threading.Event()

    def burn() -> None:
        while not stopping.is_set():
            sum(range(10_000))

    thread = threading.Thread(target=burn, name="energy_callbacks burner", daemon=True)
    thread.start()
    shares = overhead.core_shares(0.2, lambda: time.sleep(0.01))
    stopping.set()
    thread.join()
    assert shares["burner"] > 0.05
