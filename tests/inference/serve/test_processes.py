"""A server with real processes on the CPU, in real time."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from energy_callbacks.inference.control.protocols import OperatingPoint
from energy_callbacks.inference.profile.open_device import LocalDevice
from energy_callbacks.inference.profile.sweeps import equal, single
from energy_callbacks.inference.profile.tenant_process import TenantFailed
from energy_callbacks.inference.records import Configuration
from energy_callbacks.inference.serve import machine as machines
from energy_callbacks.inference.serve.arrivals import Arrivals, ClosedLoop, Recorded
from energy_callbacks.inference.serve.machine import LocalMachine
from energy_callbacks.inference.serve.pools import processes
from energy_callbacks.inference.serve.server import Server
from energy_callbacks.sensing.sources.nvidia.processes import CardProcess
from tests.fake_nvml import card_uuid
from tests.inference.profile import conftest
from tests.inference.profile.conftest import ROOT, STEADY, Machine, until

fake_nvml, machine = conftest.fake_nvml, conftest.machine

HOST = LocalDevice(uuid=None, name="CPU")
MODELS = "tests.inference.serve.models"
Start = Callable[..., Server]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Provide a function that starts a server; its processes end after the test."""
    monkeypatch.chdir(ROOT)
    with LocalMachine(HOST, load_s=30.0) as machine:

        def started(configuration: Configuration, arrivals: Arrivals | None = None) -> Server:
            models = dict.fromkeys(one.model for one in configuration.tenants)
            server = Server(machine, {model: arrivals or ClosedLoop() for model in models})
            server.apply(OperatingPoint(configuration=configuration))
            return server

        yield started


def all_answered_once(server: Server) -> int:
    """Check that no request was lost, and return how many were answered."""
    counts = server.dispatcher.counts()
    for one in counts.values():
        assert one["arrived"] == one["answered"] + one["waiting"]
    return sum(one["answered"] for one in counts.values())


def test_batches_follow_each_other(start: Start) -> None:
    """Two tenants of 8 ms per batch of four run almost all the time; energy is that of windows."""
    server = start(equal(STEADY, 50.0, 4, 2))
    windows = [server.window(0.5) for _ in range(3)]
    assert windows[1].start_s == windows[0].end_s
    # Sleeping takes longer than asked for, and processors may be busy; never shorter.
    assert 200.0 < windows[-1].throughput_per_s <= 1000.0
    assert windows[-1].latency_p95_ms is not None
    assert windows[-1].latency_p95_ms >= 8.0
    assert windows[-1].power_mean_w > 0.0
    assert all_answered_once(server) > 100
    assert server.energies.found.total_j > 0.0


def test_tenants_pause_when_the_energy_of_a_window_is_used(start: Start) -> None:
    """The budget is a third of the power: all processes pause, go on later, and lose nothing."""
    configuration = equal(STEADY, 50.0, 4, 2)
    server = start(configuration)
    free = [server.window(0.5) for _ in range(2)][-1]
    budget_w = free.power_mean_w / 3.0
    server.apply(OperatingPoint(configuration=configuration, budget_w=budget_w))
    tight = [server.window(0.5) for _ in range(2)][-1]
    assert tight.paused > 0.4
    assert tight.throughput_per_s < 0.7 * free.throughput_per_s
    server.apply(OperatingPoint(configuration=configuration))
    later = [server.window(0.5) for _ in range(2)][-1]
    assert later.paused == 0.0
    assert later.throughput_per_s > tight.throughput_per_s
    assert all_answered_once(server) > 0


def test_a_change_with_requests_under_way(start: Start) -> None:
    """New processes load while the old ones serve; then the old ones end; nothing is lost."""
    server = start(equal(STEADY, 50.0, 4, 1))
    pool = server._machine.pool  # type: ignore[attr-defined]
    (first,) = pool.pids.values()
    server.apply(OperatingPoint(configuration=equal(STEADY, 25.0, 4, 2)))
    rates = []
    while not server.window(0.3).is_steady:
        rates.append(server.window(0.3).throughput_per_s)
    assert min(rates, default=1.0) > 0.0
    until(lambda: len(pool.pids) == 2)
    assert first not in pool.pids.values()
    assert all_answered_once(server) > 0


def test_old_processes_that_end_slowly(start: Start) -> None:
    """The new ones answer requests meanwhile; no window is steady until the old ones have ended."""
    model = f"{MODELS}:ends_slowly"
    server = start(equal(model, 50.0, 4, 1))
    new = equal(model, 25.0, 4, 2)
    server.apply(OperatingPoint(configuration=new))
    windows = []
    while not (window := server.window(0.3)).is_steady:
        windows.append(window)
    changed = [one for one in windows if one.point.configuration == new]
    assert len(changed) >= 3
    assert min(one.throughput_per_s for one in changed) > 50.0
    assert all_answered_once(server) > 0


def test_requests_of_a_killed_tenant(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait again, and another process answers them."""
    monkeypatch.setenv("DIES_ONCE", str(tmp_path / "died"))
    server = start(equal(f"{MODELS}:dies_once", 50.0, 2, 1), Recorded([0.0] * 40))
    until(lambda: server.dispatcher.counts()[f"{MODELS}:dies_once"]["answered"] == 40)
    assert server.dispatcher.returned > 0
    assert (tmp_path / "died").exists()
    assert server.window(0.1).point.configuration.tenants


def test_a_tenant_that_is_killed_again_and_again(start: Start) -> None:
    """Serving ends with an error after some attempts."""
    server = start(equal(f"{MODELS}:dies_often", 50.0, 1, 1), Recorded([0.0] * 1000))
    until(lambda: server.dispatcher.failure is not None)
    with pytest.raises(TenantFailed, match=r"SIGKILL.*tenants have crashed 4 times"):
        server.window(0.1)


def test_a_tenant_that_does_not_answer(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended after the longest time of a batch, and its requests wait again."""
    server = start(equal(STEADY, 50.0, 200, 1), Recorded([0.2] * 200))
    monkeypatch.setattr(processes, "_BATCH_S", 0.1)  # a batch takes 0.4 s
    until(lambda: server.dispatcher.returned > 0)


@pytest.mark.parametrize("others", [(), (CardProcess(pid=4711, name=None, memory_bytes=1),)])
def test_other_processes_on_the_gpu(
    others: tuple[CardProcess, ...], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their energy is not known, so that none is attributed; without them, it is."""
    monkeypatch.setattr(machines, "card_processes", lambda _: others)
    with LocalMachine(LocalDevice(uuid=card_uuid(0), name="NVIDIA H200"), load_s=30.0) as opened:
        server = Server(opened, {STEADY: ClosedLoop()})
        server.apply(OperatingPoint(configuration=equal(STEADY, 50.0, 1, 2)))
        server.window(0.5)
    found = server.energies.found
    assert found.total_j == pytest.approx(150.0, rel=0.02)
    assert found.not_attributed_j == (found.total_j if others else 0.0)
    assert found.reason == ("other processes use the GPU: 4711" if others else "")
    assert bool(found.tenants_j) is not bool(others)


def test_models_that_cannot_be_loaded(start: Start) -> None:
    """The first ones are an error; later ones are refused, and the old ones go on."""
    wrong = single([STEADY, f"{MODELS}:missing"], [50.0], [1])
    with pytest.raises(TenantFailed, match="has no attribute 'missing'"):
        start(wrong)


def test_later_models_that_cannot_be_loaded(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """They are refused with a warning, and the old ones go on."""
    server = start(equal(STEADY, 50.0, 1, 1))
    server.apply(
        OperatingPoint(configuration=equal("tests.inference.profile.models:hungry", 50.0, 8, 1))
    )
    until(lambda: server.dispatcher.refused)
    until(lambda: server.window(0.2).refused)
    window = server.window(0.2)
    assert window.point.configuration == equal(STEADY, 50.0, 1, 1)
    assert window.throughput_per_s > 0.0
    assert "could not be loaded" in caplog.text
