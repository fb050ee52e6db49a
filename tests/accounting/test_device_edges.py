"""Delays of a GPU behind its host at changes of phase, from events on a virtual clock."""

import math
from dataclasses import replace

import pytest

from energy_callbacks.accounting import device_edges
from energy_callbacks.accounting.device_edges import DeviceEdges
from energy_callbacks.core.records import Device
from energy_callbacks.sensing.frameworks.work_ends import WorkEnds
from energy_callbacks.testing import FakeClock
from tests.sensing.frameworks.scripted_events import ScriptedDevice

GPU = Device(key="gpu0", kind="gpu", scope="gpu", name="simulated", uuid="GPU-1")


class Bench:
    """A host that queues work of 0.1 s for each phase."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.device = ScriptedDevice(self.clock)
        self.is_awake = True
        self.ends = WorkEnds(self.clock, lambda: self.device if self.is_awake else None)
        self.edges = DeviceEdges(self.ends)

    def change(self) -> float:
        """Queue work and change the phase; return the time of the change."""
        self.device.launch(0.1)
        now_s = self.clock.monotonic_s()
        self.edges.mark(now_s)
        return now_s

    def delays_s(self, *edges_s: float) -> list[float]:
        """Delays as the journal's thread sees them now."""
        self.edges.settle()
        return [self.edges.delay_s(t_s) for t_s in edges_s]


def test_delays_are_measured_when_the_gpu_gets_there() -> None:
    """Three phases are queued at once, and the GPU reaches them one after the other."""
    bench = Bench()
    edges_s = [bench.change() for _ in range(3)]
    bench.clock.advance(0.15)
    first_s, *later_s = bench.delays_s(*edges_s)
    assert first_s == pytest.approx(0.1, abs=1e-3)
    assert later_s == [math.inf, math.inf]
    bench.clock.advance(0.2)
    assert bench.delays_s(*edges_s) == pytest.approx([0.1, 0.2, 0.3], abs=1e-3)


def test_a_gpu_that_has_no_work_is_not_late() -> None:
    """Before CUDA is used, and while nothing is queued."""
    bench = Bench()
    bench.is_awake = False
    before_s = bench.change()
    bench.is_awake = True
    bench.clock.advance(1.0)
    after_s = bench.clock.monotonic_s()
    bench.edges.mark(after_s)
    bench.clock.advance(1.0)
    assert bench.delays_s(before_s) == [0.0]
    assert bench.delays_s(after_s) == pytest.approx([0.0], abs=1e-3)


def test_what_was_not_measured_is_not_a_number() -> None:
    """Moments without an event, events that cannot be recorded, and times that are too vague."""
    bench = Bench()
    bench.device.is_capturing = True
    captured_s = bench.change()
    bench.device.is_capturing = False
    vague_s = bench.change()
    bench.clock.advance(0.2)
    bench.device.idle_delay_s = 0.01  # anchors, and so all times, are off by up to 5 ms
    assert all(map(math.isnan, bench.delays_s(captured_s, vague_s, 7.0)))


def test_what_the_gpu_reaches_after_the_end() -> None:
    """It is after all readings, and not at the host's time."""
    bench = Bench()
    reached_s, unreached_s = bench.change(), bench.change()
    bench.clock.advance(0.15)
    bench.edges.close()
    assert bench.edges.delay_s(reached_s) == pytest.approx(0.1, abs=1e-3)
    assert bench.edges.delay_s(unreached_s) == math.inf
    assert bench.device.alive == []


def test_old_changes_are_forgotten() -> None:
    """Only those before the given time."""
    bench = Bench()
    old_s = bench.change()
    bench.clock.advance(1.0)
    new_s = bench.change()
    bench.clock.advance(1.0)
    bench.edges.settle()
    bench.edges.forget(new_s)
    assert math.isnan(bench.edges.delay_s(old_s))
    assert bench.edges.delay_s(new_s) == pytest.approx(0.1, abs=1e-3)


def test_phases_that_change_too_often_have_no_events() -> None:
    """A phase for each step of 5 ms would cost 1 % of the time: 50 per second are recorded."""
    bench = Bench()
    for _ in range(2000):
        bench.edges.mark(bench.clock.monotonic_s())
        bench.clock.advance(0.005)
    assert bench.ends.marked == pytest.approx(10.0 * 50 + 100, abs=2)


def test_changes_that_nobody_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """If energies of phases were given up, for example: only the newest are known."""
    monkeypatch.setattr(device_edges, "_MOST_KNOWN", 3)
    bench = Bench()
    edges_s = []
    for _ in range(5):
        edges_s.append(bench.change())
        bench.clock.advance(1.0)
    assert [math.isnan(delay_s) for delay_s in bench.delays_s(*edges_s)] == [True] * 2 + [False] * 3


def test_events_are_those_of_one_gpu() -> None:
    """The card of this UUID, or the one with the MIG instance; none before CUDA is used."""
    bench = Bench()
    assert not bench.edges.are_of(GPU)
    bench.change()
    assert bench.edges.are_of(GPU)
    assert bench.edges.are_of(replace(GPU, uuid="GPU-2", instances=("MIG-1",)))
    assert not bench.edges.are_of(replace(GPU, uuid="GPU-2"))
    assert not bench.edges.are_of(replace(GPU, uuid=None))
