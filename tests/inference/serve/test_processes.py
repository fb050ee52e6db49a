"""A server with real processes on the CPU, in real time."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from energy_callbacks.inference.control.loop import CapSchedule
from energy_callbacks.inference.control.protocols import OperatingPoint
from energy_callbacks.inference.profile import tenant_process
from energy_callbacks.inference.profile.open_device import LocalDevice
from energy_callbacks.inference.profile.sweeps import equal, single
from energy_callbacks.inference.profile.tenant_process import TenantFailed
from energy_callbacks.inference.records import Configuration
from energy_callbacks.inference.serve import machine as machines
from energy_callbacks.inference.serve.arrivals import Arrivals, ClosedLoop, Recorded
from energy_callbacks.inference.serve.fixed import Fixed
from energy_callbacks.inference.serve.machine import LocalMachine
from energy_callbacks.inference.serve.pools import processes
from energy_callbacks.inference.serve.pools.protocol import Event, Failed
from energy_callbacks.inference.serve.server import Server
from energy_callbacks.inference.serve.session import serve
from energy_callbacks.sensing.sources.nvidia.processes import CardProcess
from tests.core.waiting import until
from tests.fake_nvml import card_uuid
from tests.inference.profile import conftest
from tests.inference.profile.conftest import ROOT, STEADY, Machine

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
    windows = [server.window(0.5)]
    # Sleeping takes longer than asked for, and processors may be busy; never shorter.
    until(lambda: windows.append(server.window(0.5)) or windows[-1].throughput_per_s > 200.0)
    assert windows[1].start_s == windows[0].end_s
    assert all(one.throughput_per_s <= 1000.0 for one in windows)
    assert windows[-1].latency_p95_ms is not None
    assert windows[-1].latency_p95_ms >= 8.0
    assert windows[-1].power_mean_w > 0.0
    assert all_answered_once(server) >= 100
    assert server.energies.found.total_j > 0.0


def test_tenants_pause_when_the_energy_of_a_window_is_used(start: Start) -> None:
    """The budget is a third of the power: all processes pause, go on later, and lose nothing."""
    configuration = equal(STEADY, 50.0, 4, 2)
    server = start(configuration)

    def is_free() -> bool:
        window = server.window(0.5)
        assert window.paused == 0.0
        return window.throughput_per_s > 500.0

    def is_tight() -> bool:
        window = server.window(0.5)
        return window.paused > 0.4 and window.throughput_per_s < 500.0

    until(is_free)  # not at once if another program has the processor
    budget_w = server.window(0.5).power_mean_w / 3.0
    server.apply(OperatingPoint(configuration=configuration, budget_w=budget_w))
    until(is_tight)
    server.apply(OperatingPoint(configuration=configuration))
    until(is_free)
    assert all_answered_once(server) > 0


def until_more_are_answered(server: Server) -> None:
    """Wait until more requests were answered than tenants are sent at once."""
    enough = all_answered_once(server) + 100
    until(lambda: all_answered_once(server) >= enough)


def test_a_change_with_requests_under_way(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New processes load while the old ones serve; then the old ones end; nothing is lost."""
    loads, model = tmp_path / "loads", f"{MODELS}:loads_slowly"
    monkeypatch.setenv("LOADS", str(loads))
    loads.touch()
    old, new = equal(model, 50.0, 4, 1), equal(model, 25.0, 4, 2)
    server = start(old)
    pool = server._machine.pool  # type: ignore[attr-defined]
    (first,) = pool.pids.values()
    loads.unlink()
    server.apply(OperatingPoint(configuration=new))
    until(lambda: len(pool.pids) == 3)
    until_more_are_answered(server)
    assert server.window(0.1).point.configuration == old
    loads.touch()
    until(lambda: server.window(0.3).is_steady)
    assert server.window(0.1).point.configuration == new
    assert len(pool.pids) == 2
    assert first not in pool.pids.values()
    assert all_answered_once(server) > 0


def test_old_processes_that_end_slowly(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new ones answer requests meanwhile; no window is steady until the old ones have ended."""
    ends, model = tmp_path / "ends", f"{MODELS}:ends_slowly"
    monkeypatch.setenv("ENDS", str(ends))
    monkeypatch.setattr(processes, "END_S", 60.0)
    server = start(equal(model, 50.0, 4, 1))
    pool = server._machine.pool  # type: ignore[attr-defined]
    (first,) = pool.pids.values()
    new = equal(model, 25.0, 4, 2)
    server.apply(OperatingPoint(configuration=new))
    until(lambda: server.window(0.1).point.configuration == new)
    until_more_are_answered(server)
    assert not any(server.window(0.1).is_steady for _ in range(3))
    assert first in pool.pids.values()
    ends.touch()
    until(lambda: server.window(0.3).is_steady)
    assert first not in pool.pids.values()
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
    monkeypatch.setattr(processes, "_BATCH_S", 0.1)
    monkeypatch.setattr(tenant_process, "END_S", 0.1)
    server = start(equal(f"{MODELS}:stops", 50.0, 1, 1), Recorded([0.0]))
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
        windows = [server.window(0.5)]
        # A window in which the tenants had no processor has nothing to attribute.
        until(
            lambda: others or server.energies.found.tenants_j or windows.append(server.window(0.5))
        )
    found = server.energies.found
    assert found.total_j == pytest.approx(150.0 * len(windows), rel=0.02)
    assert found.not_attributed_j == (found.total_j if others else 0.0)
    assert found.reason == ("other processes use the GPU: 4711" if others else "")
    assert bool(found.tenants_j) is not bool(others)


def test_what_tenants_say_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two processes of a model without CUDA graphs give one warning, and a line of the report."""
    monkeypatch.chdir(ROOT)
    tenants, model = equal(f"{MODELS}:noted", 50.0, 1, 2), f"{MODELS}:noted"
    with LocalMachine(HOST, load_s=30.0) as machine:
        one = Server(machine, {model: ClosedLoop()})
        report = serve(one, lambda _: Fixed(tenants), CapSchedule.fixed(1e6), seconds=2)
    said = f"{model} runs without CUDA graphs: it depends on results"
    assert [record.getMessage() for record in caplog.records].count(said) == 1
    assert report.as_json()["notes"] == [said]
    assert f"note        {said}" in report.text().splitlines()


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
    assert server.window(0.2).point.configuration == equal(STEADY, 50.0, 1, 1)
    until_more_are_answered(server)
    assert "could not be loaded" in caplog.text


def test_two_tenants_that_fail_at_the_same_time(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure of the second one is handled after the change was given up."""
    server = start(equal(STEADY, 50.0, 1, 1))
    pool = server._machine.pool  # type: ignore[attr-defined]
    wait = pool.wait
    failed: list[Event] = []

    def together(until_s: float) -> list[Event]:
        events = wait(until_s)
        failed.extend(one for one in events if isinstance(one, Failed))
        others = [one for one in events if not isinstance(one, Failed)]
        return others if len(failed) % 2 else [*others, *(failed.pop() for _ in failed[:])]

    monkeypatch.setattr(pool, "wait", together)
    bad = equal("tests.inference.profile.models:hungry", 25.0, 8, 2)
    server.apply(OperatingPoint(configuration=bad))
    until(lambda: server.dispatcher.refused or server.dispatcher.failure)
    assert server.dispatcher.failure is None
    until_more_are_answered(server)
    assert server.dispatcher.failure is None
    assert server.dispatcher.refused.keys() == {bad.tenants}
