"""A server on a simulated GPU, in virtual time: changes of tenants, pauses, windows and figures."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from energy_callbacks.inference.control.protocols import OperatingPoint, Window
from energy_callbacks.inference.profile.sweeps import equal, single
from energy_callbacks.inference.profile.tenant_process import TenantFailed
from energy_callbacks.inference.records import Configuration, MeasuredWindow
from energy_callbacks.inference.serve.arrivals import Arrivals, ClosedLoop, Poisson, Recorded
from energy_callbacks.inference.serve.machine import SimulatedMachine
from energy_callbacks.inference.serve.server import Server
from energy_callbacks.inference.serve.steps_over_time import StepsOverTime
from energy_callbacks.inference.simulated.presets import card, simulated_gpu, workloads

FOUR = equal("resnet50", 25.0, 16, 4)
TWO = equal("resnet50", 50.0, 16, 2)


def point(configuration: Configuration, duty: float = 1.0) -> OperatingPoint:
    """Return an operating point."""
    return OperatingPoint(configuration=configuration, duty=duty)


class Lab:
    """A server with a simulated H200.

    Attributes:
        server: the server.
        rows: the rows that it has written.
    """

    def __init__(self, arrivals: Mapping[str, Arrivals] | None = None, **options: object) -> None:
        self.machine = SimulatedMachine(simulated_gpu("sim:h200"), **options)  # type: ignore[arg-type]
        self.rows: list[MeasuredWindow] = []
        given = {"resnet50": ClosedLoop()} if arrivals is None else arrivals
        self.server = Server(self.machine, given, write=self.rows.append)

    def apply(self, configuration: Configuration, duty: float = 1.0) -> None:
        self.server.apply(point(configuration, duty))

    def windows(self, count: int) -> list[Window]:
        return [self.server.window(1.0) for _ in range(count)]

    def all_answered_once(self) -> None:
        """Check that each request was answered, or is in the queue or a batch, and none twice."""
        counts = self.server.dispatcher.counts()
        for one in counts.values():
            assert one["arrived"] == one["answered"] + one["waiting"]
        latencies = self.server.dispatcher.log.latencies_s
        assert all(min(each, default=0.0) >= 0.0 for each in latencies.values())


@pytest.mark.parametrize("configuration", [FOUR, TWO, equal("resnet50", 100.0, 64, 1)])
def test_a_closed_loop_keeps_tenants_busy(configuration: Configuration) -> None:
    """Throughput and power are those of a profile of the same configuration."""
    lab = Lab()
    lab.apply(configuration)
    *_, last = lab.windows(4)
    profile = simulated_gpu("sim:h200").measure(configuration, window_s=3.0, warmup_s=3.0)
    assert profile.throughput_per_s is not None
    assert profile.power_mean_w is not None
    assert last.is_steady
    assert last.throughput_per_s == pytest.approx(profile.throughput_per_s, rel=0.015)
    assert last.power_mean_w == pytest.approx(profile.power_mean_w, rel=0.015)
    assert len(last.tenant_throughputs_per_s) == len(configuration.tenants)
    assert math.fsum(last.tenant_throughputs_per_s) == pytest.approx(last.throughput_per_s)


def test_windows_follow_each_other() -> None:
    """Each begins where the previous one has ended, and rows have phase, source and energy."""
    lab = Lab()
    lab.apply(FOUR)
    windows = lab.windows(5)
    assert [b.start_s for b in windows[1:]] == [a.end_s for a in windows[:-1]]
    assert {(row.phase, row.source, row.status) for row in lab.rows} == {
        ("online", "simulated", "ok")
    }
    for row, window in zip(lab.rows, windows, strict=True):
        assert row.energy_j == pytest.approx(window.power_mean_w)
        assert row.throughput_per_s == window.throughput_per_s
    assert "duty 1, cap inf W, steady" in lab.rows[-1].note


def test_tenants_change_without_a_break() -> None:
    """The old tenants serve until the new ones have loaded, and no request is lost."""
    lab = Lab(load_s=4.0)
    lab.apply(FOUR)
    lab.windows(2)
    lab.apply(TWO)
    windows = lab.windows(8)
    tenants = [window.point.configuration.tenants for window in windows]
    assert tenants == [FOUR.tenants] * 4 + [TWO.tenants] * 4
    assert [window.is_steady for window in windows] == [False] * 5 + [True] * 3
    assert min(window.throughput_per_s for window in windows) > 9000.0
    lab.all_answered_once()
    assert lab.server.dispatcher.switches == 2


def test_windows_are_steady_once_the_old_processes_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processes that end may slow down those that share their GPU."""
    lab = Lab(load_s=1.0)
    lab.apply(FOUR)
    lab.windows(2)
    pool = lab.machine.pool
    ended: list[int] = []
    end = pool.end
    monkeypatch.setattr(pool, "end", ended.append)
    lab.apply(TWO)
    before = lab.windows(5)
    assert before[-1].point.configuration.tenants == TWO.tenants
    assert not any(window.is_steady for window in before)
    for worker in ended:
        end(worker)
    assert [window.is_steady for window in lab.windows(3)] == [False, True, True]


def test_a_late_change_of_the_duty_is_steady() -> None:
    """A controller takes some milliseconds; after a tenth of the window it is too late."""
    lab = Lab()
    lab.apply(FOUR)
    lab.windows(2)
    for late_s, is_steady in ((0.05, True), (0.3, False)):
        lab.machine.pass_until(lab.machine.pool.now_s() + late_s)
        lab.apply(FOUR, duty=1.0 - late_s)
        assert lab.windows(1)[0].is_steady is is_steady


def test_a_change_that_is_given_up() -> None:
    """If the old tenants are wanted again while new ones load, they go on."""
    lab = Lab(load_s=4.0)
    lab.apply(FOUR)
    lab.windows(1)
    lab.apply(TWO)
    lab.windows(1)
    lab.apply(FOUR)
    windows = lab.windows(6)
    assert {window.point.configuration.tenants for window in windows} == {FOUR.tenants}
    assert windows[-1].is_steady
    assert lab.server.dispatcher.switches == 1
    lab.all_answered_once()


def test_while_tenants_load_power_is_below_the_cap() -> None:
    """The old tenants pause meanwhile, also if the controller asks for no pauses."""
    lab = Lab(load_s=6.0)
    lab.server.cap_w = 600.0
    lab.apply(FOUR)
    before = lab.windows(3)[-1].power_mean_w
    cap_w = lab.server.cap_w = 0.7 * before
    lab.apply(replace(TWO, tenants=TWO.tenants[:1]))
    windows = [one for one in lab.windows(7) if one.point.configuration.tenants == FOUR.tenants]
    assert len(windows) == 6
    assert max(window.power_mean_w for window in windows[1:]) <= cap_w
    assert windows[0].power_mean_w <= 1.1 * cap_w  # the first estimate
    assert windows[-1].throughput_per_s > 2000.0


def test_a_lower_cap_while_tenants_load() -> None:
    """It holds from the next window on, also if the controller asks for the same point again."""
    lab = Lab(load_s=6.0)
    lab.server.cap_w = 600.0
    lab.apply(FOUR)
    before_w = lab.windows(3)[-1].power_mean_w
    lab.apply(TWO)
    lab.windows(1)
    lab.server.cap_w = 0.7 * before_w
    lab.apply(TWO)
    windows = lab.windows(3)
    assert {window.point.configuration for window in windows} == {FOUR}
    assert max(window.power_mean_w for window in windows) <= 1.1 * lab.server.cap_w


def test_batches_before_a_window_are_forgotten() -> None:
    """A server that runs for days keeps those of one window."""
    lab = Lab()
    lab.apply(FOUR)
    last = lab.windows(5)[-1]
    assert lab.server.dispatcher.log.batches
    assert min(one.end_s for one in lab.server.dispatcher.log.batches) > last.start_s


def test_old_tenants_end_first_without_memory() -> None:
    """New tenants that do not fit beside the old ones load after them; requests wait."""
    room_gib = card("h200").memory_gib - 10.0
    batch = int(room_gib * 1024 / workloads("h200")["resnet50"].sample_mib / 2.0)
    big, other = (equal("resnet50", share, batch, 1) for share in (25.0, 50.0))
    big = replace(big, tenants=(*big.tenants, replace(big.tenants[0], batch=16)))
    other = replace(other, tenants=(*other.tenants, replace(other.tenants[0], batch=batch // 2)))
    lab = Lab(load_s=2.0)
    lab.apply(big)
    lab.windows(3)
    lab.apply(other)
    windows = lab.windows(8)
    rates = [window.throughput_per_s for window in windows]
    assert lab.server.dispatcher.refused == {}
    assert windows[-1].point.configuration == other
    assert min(rates) == 0.0  # nothing serves while the new tenant loads
    assert rates[-1] > 0.0
    lab.all_answered_once()


def test_tenants_that_do_not_fit_at_all(caplog: pytest.LogCaptureFixture) -> None:
    """The old tenants load again and go on, and a warning says why."""
    lab = Lab(load_s=2.0)
    lab.apply(FOUR)
    lab.windows(1)
    lab.apply(equal("resnet50", 50.0, 10**6, 1))
    windows = lab.windows(8)
    assert windows[-1].point.configuration == FOUR
    assert windows[-1].throughput_per_s > 9000.0
    assert "out of memory" in caplog.text
    lab.server.cap_w = 400.0  # a controller does not know that these tenants serve
    assert lab.windows(4)[-1].power_mean_w <= 400.0
    lab.server.cap_w = 1000.0
    lab.windows(2)
    lab.apply(equal("resnet50", 50.0, 10**6, 1))  # is not tried again
    assert lab.server.window(1.0).throughput_per_s > 9000.0
    lab.all_answered_once()


@pytest.mark.parametrize("good", [FOUR, TWO])
def test_two_tenants_that_do_not_fit(good: Configuration) -> None:
    """They fail at the same time; only they are refused, and the old tenants go on."""
    lab = Lab()
    lab.apply(good)
    lab.windows(1)
    bad = equal("resnet50", 50.0, 10**5, 2)
    lab.apply(bad, 0.8)
    window = lab.windows(16)[-1]
    assert window.point.configuration == good
    assert window.throughput_per_s > 9000.0
    assert lab.server.dispatcher.refused.keys() == {bad.tenants}
    lab.all_answered_once()


def test_first_tenants_that_do_not_fit() -> None:
    """Serving cannot begin."""
    with pytest.raises(TenantFailed, match="out of memory"):
        Lab().apply(equal("resnet50", 50.0, 10**6, 1))


def test_smaller_batches_need_no_loading() -> None:
    """They hold at once; larger ones after a short time, in the same processes."""
    lab = Lab(load_s=20.0)
    lab.apply(FOUR)
    lab.windows(1)
    for batch in (4, 16, 32):
        lab.apply(equal("resnet50", 25.0, batch, 4))
        windows = lab.windows(2)
        assert windows[1].is_steady
        assert windows[1].point.configuration.tenants[0].batch == batch
    lab.all_answered_once()


@pytest.mark.parametrize("duty", [0.9, 0.5, 0.2])
def test_duty(duty: float) -> None:
    """A tenant works for the share of time, so that dynamic power and throughput have the share."""
    one = equal("resnet50", 100.0, 16, 1)
    lab = Lab()
    lab.apply(one)
    full = lab.windows(3)[-1]
    lab.apply(one, duty)
    windows = lab.windows(6)[1:]
    mean_w = math.fsum(window.power_mean_w for window in windows) / len(windows)
    rate = math.fsum(window.throughput_per_s for window in windows) / len(windows)
    idle_w = lab.server.idle_w
    assert rate == pytest.approx(duty * full.throughput_per_s, rel=0.03)
    assert mean_w - idle_w == pytest.approx(
        duty * (full.power_mean_w - idle_w), rel=0.08
    )  # steps of 1 ms
    assert all(window.is_steady for window in windows)


def test_random_requests_are_answered_soon() -> None:
    """At a third of the capacity, nothing waits long, and windows are not steady for a controller.

    Tenants do not work all the time then, so that the power says little about the configuration.
    """
    lab = Lab({"resnet50": Poisson(StepsOverTime.parse("4000"), seed=3)})
    lab.apply(FOUR)
    windows = lab.windows(4)
    rate = math.fsum(window.throughput_per_s for window in windows) / 4
    assert rate == pytest.approx(4000.0, rel=0.03)
    assert lab.server.dispatcher.latencies_ms()["p99"] < 20.0
    assert not any(window.is_steady for window in windows)
    lab.all_answered_once()


def test_latencies_are_from_arrival_to_answer() -> None:
    """A request to an idle tenant takes as long as its batch; one that waits takes longer."""
    gpu = simulated_gpu("sim:h200")
    one = equal("resnet50", 100.0, 1, 1)
    gpu.run(one.tenants)
    batch_s = 1.0 / gpu.rates_per_s[0]
    lab = Lab({"resnet50": Recorded([0.5, 0.5, 0.5])})
    lab.apply(one)
    lab.windows(1)
    latencies = sorted(lab.server.dispatcher.log.latencies_s["resnet50"])
    expected = [batch_s, 2.0 * batch_s, 3.0 * batch_s]
    assert latencies == pytest.approx(expected, abs=0.0015)  # steps of 1 ms


def test_two_models() -> None:
    """Each has a queue of its own; the requests of a model without a tenant wait."""
    both = single(["resnet50", "mobilenet_v2"], [50.0], [16])
    lab = Lab({"resnet50": ClosedLoop(64), "mobilenet_v2": ClosedLoop(64)})
    lab.apply(both)
    lab.windows(2)
    counts = lab.server.dispatcher.counts()
    assert min(one["answered"] for one in counts.values()) > 1000
    lab.apply(TWO)
    lab.windows(10)
    begin = lab.server.dispatcher.counts()["mobilenet_v2"]
    lab.windows(1)
    assert lab.server.dispatcher.counts()["mobilenet_v2"] == begin
    assert begin["waiting"] == 64
    lab.all_answered_once()


def test_settings() -> None:
    """Clocks and limits are set if they may be, and are as found without a value."""
    lab = Lab(can=frozenset({"partition", "batch", "duty", "limit", "clock"}))
    assert lab.server.abilities.ranges.keys() == {"limit", "clock"}
    lab.apply(replace(FOUR, power_limit_w=300.0))
    assert lab.windows(4)[-1].power_mean_w < 310.0
    lab.apply(FOUR)
    assert lab.windows(4)[-1].power_mean_w > 450.0
    lab.apply(replace(FOUR, sm_mhz=1200.0))
    assert lab.windows(2)[-1].sm_mhz_measured == 1200.0
    with pytest.raises(ValueError, match="memory_clock, which is not allowed"):
        lab.apply(replace(FOUR, mem_mhz=3201.0))


@pytest.mark.parametrize("duty", [0.0, 1.5])
def test_wrong_duty(duty: float) -> None:
    """The message has the value."""
    with pytest.raises(ValueError, match="duty must be above 0 and at most 1, got"):
        Lab().apply(FOUR, duty)


def test_no_window_before_the_first_point() -> None:
    """The message says what to call."""
    with pytest.raises(ValueError, match="apply must be called before"):
        Lab().server.window(1.0)
