import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from energy_callbacks.core.records import Channel, Reading
from energy_callbacks.sensing.clock import Periodic
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource, inventory
from tests.fake_nvml import presets
from tests.fake_nvml.library import FakeNvml, VirtualTime
from tests.fake_nvml.scenario import Card, Fault, Mig, Process, Scenario, card_uuid
from tests.fake_nvml.sensor import Buffer, Sensor
from tests.fake_nvml.signals import Constant, Sine, Square

WAVE = Sine(mean_w=400.0, amplitude_w=150.0, period_s=7.3)
GPM = {"sm_active", "sm_occupancy", "tensor_active", "dram_active"}
LOAD = {"utilisation", "memory_utilisation"}
CLOCKS = {"clock", "memory_clock"}
GAUGES = {"memory_used", *LOAD, "temperature", *CLOCKS, "power_limit", "throttled"}
ALL = {"power", "energy", *GAUGES, *GPM}
MIGS = tuple(
    Mig(uuid=f"MIG-1111111{i}-0000-5000-8000-000000000000", gpu_instance=i) for i in (1, 2)
)


class LibraryClock:
    """The fake library's time, with a monotonic clock that stays when the wall clock is set.

    Monotonic time is the scenario's own: 0 at its epoch.
    """

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._jumps_s = 0.0

    def monotonic_s(self) -> float:
        return self._time.monotonic_s() - self._jumps_s

    def unix_s(self) -> float:
        return self._time.unix_s()

    def sleep(self, duration_s: float) -> None:
        self._time.advance(duration_s)

    def set_wall_clock(self, jump_s: float) -> None:
        self._time.advance(jump_s)
        self._jumps_s += jump_s

    def every(self, interval_s: float, job: Callable[[], float | None], name: str) -> Periodic:
        raise NotImplementedError


class Bench:
    """A source on the first card of a scenario, from its second 100 on, and the truth."""

    def __init__(self, nvml: FakeNvml, uuid: str | None = None) -> None:
        self.nvml = nvml
        self.time = nvml.time
        self.time.advance(100.0)
        self.clock = LibraryClock(self.time)
        self.source = NvmlSource(self.clock, uuid or card_uuid(0))
        self.readings: list[Reading] = []

    def open(self) -> dict[str, Channel]:
        return {channel.quantity: channel for channel in self.source.open()}

    def run(self, duration_s: float, *, patient: bool = False) -> None:
        """Read as the sampler does."""
        end_s = self.clock.monotonic_s() + duration_s
        while self.clock.monotonic_s() < end_s:
            start_s = self.clock.monotonic_s()
            try:
                self.readings += self.source.read()
            except ReadingMissed:
                if not patient:
                    raise
            due_s = start_s + self.source.interval_s
            self.clock.sleep(max(due_s - self.clock.monotonic_s(), 0.0))

    def of(self, quantity: str) -> list[Reading]:
        return [reading for reading in self.readings if reading.channel.quantity == quantity]

    def times_s(self, quantity: str) -> list[float]:
        return [reading.t_s for reading in self.of(quantity)]

    def unix_s(self, t_s: float) -> float:
        return t_s + self.clock.unix_s() - self.clock.monotonic_s()


Play = Callable[..., Bench]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """``play(card, ..., faults=..., uuid=...)``: a bench on the first of these cards."""
    with ExitStack() as stack:

        def load(*cards: Card, faults: tuple[Fault, ...] = (), uuid: str | None = None) -> Bench:
            scenario = Scenario(cards=cards, faults=faults, epoch_unix_s=1.7e9)
            nvml = FakeNvml(scenario, tmp_path)
            stack.callback(nvml.close)
            bench = Bench(nvml, uuid)
            stack.callback(bench.source.close)
            return bench

        yield load


# --- what is offered


def test_h200_offers_everything(play: Play) -> None:
    """An H200 offers all quantities, power from the driver's buffer."""
    bench = play(presets.h200(WAVE))

    channels = bench.open()

    assert set(channels) == ALL
    sensor = channels["power"].sensor
    assert sensor is not None
    assert sensor.is_buffered
    assert sensor.period_s == pytest.approx(0.02, abs=0.001)
    assert "H200" in sensor.citation
    assert {channel.kind for channel in channels.values()} == {"gauge", "counter", "mean"}


def test_a_buffer_that_is_empty_at_first_is_waited_for(play: Play) -> None:
    """A driver that has just been loaded has no sample for its first 20 ms, and then goes on."""
    missing = pynvml.NVML_ERROR_NOT_FOUND
    empty = Fault(group="samples", kind="error", start_s=99.0, end_s=100.05, value=missing)
    bench = play(presets.h200(WAVE), faults=(empty,))

    sensor = bench.open()["power"].sensor

    assert sensor is not None
    assert sensor.is_buffered


def test_device(play: Play) -> None:
    """The device says which card it is: NVML's index, its UUID and its name."""
    bench = play(presets.h200(WAVE), presets.a100(WAVE), uuid=card_uuid(1))

    device = bench.open()["power"].device

    assert (device.key, device.kind, device.scope, device.index) == ("gpu1", "gpu", "gpu", 1)
    assert device.uuid == card_uuid(1)
    assert device.name == "NVIDIA A100-SXM4-80GB"
    assert device.origin == "measured"
    assert device.notes == ()


@pytest.mark.parametrize(
    ("preset", "call", "window_s", "times"),
    [
        (presets.a100, "nvmlDeviceGetPowerUsage", 0.025, (0.0625, 0.1)),
        (presets.v100, "nvmlDeviceGetPowerUsage", 0.01, (0.015, 0.02)),
        (presets.pascal, "nvmlDeviceGetPowerUsage", 0.01, (0.015, 0.02)),
        (presets.average_1s, "nvmlDeviceGetPowerUsage", 1.0, (0.7, 0.1)),
    ],
)
def test_card_without_buffer_is_polled(
    play: Play,
    preset: Callable[..., Card],
    call: str,
    window_s: float,
    times: tuple[float, float],
) -> None:
    """Without a sample buffer power is polled about as often as it changes; the sensor says how."""
    bench = play(preset(Constant(321.0)))
    lag_s, interval_s = times

    sensor = bench.open()["power"].sensor
    bench.run(5.0)

    assert sensor is not None
    assert (sensor.name, sensor.window_s, sensor.is_buffered) == (call, window_s, False)
    assert sensor.lag_s == pytest.approx(lag_s)
    assert len(bench.of("power")) == pytest.approx(5.0 / interval_s, rel=0.1)
    assert {reading.value for reading in bench.of("power")} == {321.0}


def test_instant_field_where_usage_is_a_mean(play: Play) -> None:
    """A Hopper card without buffer is read through POWER_INSTANT, not through the 1 s mean."""
    step = Square(low_w=100.0, high_w=500.0, period_s=1000.0, phase_s=102.0)
    bench = play(presets.h200(step, sensor=Sensor()))

    sensor = bench.open()["power"].sensor
    bench.run(4.0)

    assert sensor is not None
    assert "POWER_INSTANT" in sensor.name
    between = [r for r in bench.of("power") if 100.0 < r.value < 500.0]
    assert len(between) <= 1


def test_pascal_has_no_counter(play: Play) -> None:
    """A card from before Volta offers power, and no energy counter."""
    assert "energy" not in play(presets.pascal(WAVE)).open()


def test_nothing_offered_is_unavailable(play: Play) -> None:
    """A card that answers nothing cannot be opened, and NVML is let go."""
    refused = pynvml.NVML_ERROR_NOT_SUPPORTED
    groups = ("power", "instant", "counter", "samples", "memory", "light", "fields", "limits")
    faults = tuple(Fault(group=group, kind="error", start_s=0.0, value=refused) for group in groups)
    bench = play(presets.h200(WAVE), faults=faults)

    with pytest.raises(SourceUnavailable, match="no power, no energy"):
        bench.open()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


@pytest.mark.parametrize(
    ("group", "quantities"),
    [("counter", {"energy"}), ("memory", {"memory_used"}), ("fields", {"throttled"})],
)
def test_unsupported_quantity_leaves_the_others(
    play: Play, group: str, quantities: set[str]
) -> None:
    """A quantity that the card does not support is not offered, and no other one suffers."""
    refused = pynvml.NVML_ERROR_NOT_SUPPORTED
    fault = Fault(group=group, kind="error", start_s=0.0, value=refused)  # type: ignore[arg-type]

    assert set(play(presets.h200(WAVE), faults=(fault,)).open()) == ALL - quantities


# --- power


def test_samples_come_once_and_in_order(play: Play) -> None:
    """Over two minutes of drains each of the driver's samples comes once, at its own time."""
    bench = play(presets.h200(WAVE, sensor=Sensor(buffer=Buffer(jitter_s=0.003))))
    bench.open()
    bench.run(120.0)

    times = bench.times_s("power")
    indices = [round(bench.unix_s(t_s) / 0.02) for t_s in times]
    assert indices == list(range(indices[0], indices[0] + len(indices)))
    assert len(indices) > 120.0 / 0.02
    for reading in bench.of("power"):
        truth_w = WAVE.power_w(bench.unix_s(reading.t_s) - 1.7e9)
        assert reading.value == pytest.approx(truth_w, abs=0.01)


def test_finish_drains_what_is_there(play: Play) -> None:
    """At the end of a training no sample is left behind, whatever was due."""
    bench = play(presets.h200(WAVE))
    bench.open()
    bench.run(5.3)
    bench.readings += bench.source.finish()

    assert bench.times_s("power")[-1] == pytest.approx(bench.clock.monotonic_s(), abs=0.05)


def test_first_read_has_the_past(play: Play) -> None:
    """The first read hands over what the driver has kept: 2.4 s before it."""
    bench = play(presets.h200(WAVE))
    bench.open()
    opened_s = bench.clock.monotonic_s()
    bench.readings += bench.source.read()

    assert bench.times_s("power")[0] < opened_s - 2.2


@pytest.mark.parametrize("kind", ["duplicate", "unordered", "stale"])
def test_broken_buffer_still_gives_ordered_samples(play: Play, kind: str) -> None:
    """Samples that come twice, in disorder or again and again are each used once, in order."""
    fault = Fault(group="samples", kind=kind, start_s=103.0)  # type: ignore[arg-type]
    bench = play(presets.h200(WAVE), faults=(fault,))
    bench.open()
    bench.run(20.0)

    times = bench.times_s("power")
    assert times == sorted(set(times))
    assert max(later - earlier for earlier, later in pairwise(times)) < 0.05


@pytest.mark.parametrize("jump_s", [2.0, -2.0])
def test_wall_clock_set_shifts_no_sample(play: Play, jump_s: float) -> None:
    """Setting the wall clock by 2 s moves no sample; less than a second of them is missing."""
    bench = play(presets.h200(Constant(300.0)))
    bench.open()
    bench.run(5.0)
    set_s = bench.clock.monotonic_s()
    bench.clock.set_wall_clock(jump_s)
    bench.run(10.0)

    times = bench.times_s("power")
    assert times == sorted(set(times))
    assert max(later - earlier for earlier, later in pairwise(times)) < 1.0
    assert times[-1] == pytest.approx(bench.clock.monotonic_s(), abs=0.85)
    after = [t_s for t_s in times if t_s > set_s + 0.6]
    assert len(after) == pytest.approx((after[-1] - after[0]) / 0.02, abs=2)


# --- energy


@pytest.mark.parametrize("preset", [presets.h200, presets.a100, presets.v100])
def test_counter_readings_are_true_within_their_error(
    play: Play, preset: Callable[..., Card]
) -> None:
    """Each counter reading is the closed-form energy of a moment within its error of time."""
    bench = play(preset(WAVE))
    bench.open()
    bench.run(60.0)

    readings = bench.of("energy")
    assert len(readings) >= 20
    for reading in readings:
        truth_j = 1e6 + bench.nvml.energy_j(0, 1.7e9, bench.unix_s(reading.t_s))
        assert abs(reading.value - truth_j) <= 550.0 * reading.t_error_s + 0.002


def test_counter_is_cheap_and_sharp(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an H200 ticks are known to 9 ms each four seconds, for 0.3 % of a core at most."""
    bench = play(presets.h200(WAVE))
    spent_s = []
    ask = pynvml.nvmlDeviceGetTotalEnergyConsumption

    def timed(handle: object) -> int:
        start_s = bench.clock.monotonic_s()
        value: int = ask(handle)
        spent_s.append(bench.clock.monotonic_s() - start_s)
        return value

    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", timed)
    bench.open()
    bench.run(60.0)
    spent_s.clear()
    bench.readings.clear()
    bench.run(240.0)

    errors_s = [reading.t_error_s for reading in bench.of("energy")]
    assert max(errors_s) < 0.009
    assert len(errors_s) >= 60
    assert sum(spent_s) / 240.0 < 0.003


def test_the_first_quarter_of_a_second_has_a_counter_reading(play: Play) -> None:
    """The counter is anchored from the beginning."""
    bench = play(presets.h200(WAVE))
    bench.open()
    bench.run(0.25)

    assert bench.of("energy")


def test_frozen_counter_gives_no_reading(play: Play) -> None:
    """A counter that stands still gives at most one more reading; power goes on."""
    fault = Fault(group="counter", kind="freeze", start_s=105.0)
    bench = play(presets.h200(WAVE), faults=(fault,))
    bench.open()
    bench.run(30.0)

    assert sum(t_s > 105.2 for t_s in bench.times_s("energy")) <= 1
    assert bench.times_s("power")[-1] > 128.9


def test_zero_counter_gives_no_reading(play: Play) -> None:
    """A counter that says 0 says nothing."""
    idle = presets.h200(Constant(0.0), sensor=Sensor(counter_start_j=0.0, buffer=Buffer()))
    bench = play(idle)
    bench.open()
    bench.run(10.0)

    assert bench.of("energy") == []


def test_reset_counter_is_handed_over_as_it_is(play: Play) -> None:
    """After a reset the raw counter is small again: what that means is the estimator's business."""
    fault = Fault(group="counter", kind="reset", start_s=105.0)
    bench = play(presets.h200(WAVE), faults=(fault,))
    bench.open()
    bench.run(10.0)

    after = [reading for reading in bench.of("energy") if reading.t_s > 105.1]
    assert after
    for reading in after:
        truth_j = bench.nvml.energy_j(0, 1.7e9 + 105.0, bench.unix_s(reading.t_s))
        assert abs(reading.value - truth_j) <= 550.0 * reading.t_error_s + 0.002


# --- the other quantities


def test_gauges_in_si_units(play: Play) -> None:
    """Bytes, shares, degrees, hertz and seconds come as they are, each second beat."""
    card = presets.h200(
        Constant(300.0),
        memory_used_bytes=5.0 * 2**30,
        utilisation_percent=75.0,
        memory_utilisation_percent=35.0,
        temperature_c=61.0,
        sm_clock_mhz=1755.0,
        power_throttle=0.25,
        thermal_throttle=0.05,
    )
    bench = play(card)
    bench.open()
    bench.run(20.0)

    assert {reading.value for reading in bench.of("memory_used")} == {5.0 * 2**30}
    assert {reading.value for reading in bench.of("utilisation")} == {0.75}
    assert {reading.value for reading in bench.of("memory_utilisation")} == {0.35}
    assert {reading.value for reading in bench.of("memory_clock")} == {3.201e9}
    assert {reading.value for reading in bench.of("temperature")} == {61.0}
    assert {reading.value for reading in bench.of("clock")} == {1.755e9}
    assert 12 <= len(bench.of("clock")) <= 14
    first, last = bench.of("throttled")[0], bench.of("throttled")[-1]
    share = (last.value - first.value) / (last.t_s - first.t_s)
    assert share == pytest.approx(0.30, abs=0.002)


@pytest.mark.parametrize("preset", [presets.t4, presets.v100, presets.a100, presets.l4])
def test_both_utilisations_come_from_one_call(
    play: Play, monkeypatch: pytest.MonkeyPatch, preset: Callable[..., Card]
) -> None:
    """Cards before Hopper have both utilisations, at the same times, with one call for both."""
    bench = play(preset(WAVE, memory_utilisation_percent=35.0))
    bench.open()
    calls = []
    ask = pynvml.nvmlDeviceGetUtilizationRates
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetUtilizationRates", lambda card: calls.append(card) or ask(card)
    )
    bench.run(20.0)

    assert bench.times_s("memory_utilisation") == bench.times_s("utilisation")
    assert len(bench.of("memory_utilisation")) == len(calls) >= 12


def test_one_unknown_utilisation_leaves_the_other(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ones for the memory's utilisation take no reading of the other with them."""
    bench = play(presets.t4(WAVE, utilisation_percent=75.0))
    bench.open()
    rates = SimpleNamespace(gpu=75, memory=2**32 - 1)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", lambda _: rates)
    bench.run(20.0)

    assert not bench.of("memory_utilisation")
    assert {reading.value for reading in bench.of("utilisation")} == {0.75}


# --- faults


def test_a_missed_reading_names_the_newest_error(play: Play) -> None:
    """All quantities fail; the message has the error of the quantity that was read last."""
    unknown = Fault(group="*", kind="error", start_s=105.0, value=pynvml.NVML_ERROR_UNKNOWN)
    timeout = replace(unknown, group="samples", value=pynvml.NVML_ERROR_TIMEOUT)
    bench = play(presets.h200(WAVE), faults=(timeout, unknown))
    bench.open()
    bench.run(10.0, patient=True)

    # The last call of ``run`` has read all quantities that were due, so only power is read now.
    with pytest.raises(ReadingMissed, match="Timeout"):
        bench.source.read_now()


@pytest.mark.parametrize("group", ["samples", "counter", "memory", "light", "fields"])
def test_one_failing_quantity_leaves_the_others(play: Play, group: str) -> None:
    """A quantity that fails from the fifth second on takes no other one with it."""
    code = pynvml.NVML_ERROR_UNKNOWN
    fault = Fault(group=group, kind="error", start_s=105.0, value=code)  # type: ignore[arg-type]
    bench = play(presets.h200(WAVE), faults=(fault,))
    bench.open()
    bench.run(20.0, patient=True)

    alive = {r.channel.quantity for r in bench.readings if r.t_s > 110.0}
    hit = {
        "samples": {"power"},
        "counter": {"energy"},
        "memory": {"memory_used"},
        "light": {*LOAD, "temperature", *CLOCKS, "throttled"},
        "fields": {"throttled"},
    }
    assert alive == ALL - hit[group]


def everything_fails(end_s: float) -> Fault:
    """No call of NVML works from the fifth second on."""
    code = pynvml.NVML_ERROR_UNKNOWN
    return Fault(group="*", kind="error", start_s=105.0, end_s=end_s, value=code)


def test_a_short_silence_costs_no_sample(play: Play) -> None:
    """A second and a half without any answer: afterwards the samples of the gap are there."""
    bench = play(presets.h200(WAVE), faults=(everything_fails(end_s=106.5),))
    bench.open()
    bench.run(15.0, patient=True)

    times = bench.times_s("power")
    assert max(later - earlier for earlier, later in pairwise(times)) < 0.05


def test_a_long_silence_of_everything_is_a_missed_reading(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nothing has answered for a while the card is said to be silent, not each of them."""
    bench = play(presets.h200(WAVE), faults=(everything_fails(end_s=1e6),))
    bench.open()
    with pytest.raises(ReadingMissed, match="gpu0 did not answer"):
        bench.run(10.0)

    assert "for now" not in caplog.text


def test_quantity_that_fails_alone_is_said_once(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    """Power alone fails for good: said once with NVML's word; later reads are no missed ones."""
    code = pynvml.NVML_ERROR_NOT_SUPPORTED
    fault = Fault(group="samples", kind="error", start_s=105.0, value=code)
    bench = play(presets.h200(WAVE), faults=(fault,))
    bench.open()
    bench.run(8.0, patient=True)
    bench.run(8.0)

    assert caplog.text.count("gpu0: no power for now, NVML reports Not Supported") == 1
    assert bench.times_s("energy")[-1] > bench.times_s("power")[-1] + 6.0


def test_quantity_that_comes_back_may_fail_anew(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    """Power fails twice, with a while in between: both times are said."""
    code = pynvml.NVML_ERROR_UNKNOWN
    faults = tuple(
        Fault(group="samples", kind="error", start_s=start_s, end_s=start_s + 3.0, value=code)
        for start_s in (105.0, 112.0)
    )
    bench = play(presets.h200(WAVE), faults=faults)
    bench.open()
    bench.run(20.0, patient=True)

    assert caplog.text.count("gpu0: no power for now, NVML reports Unknown Error") == 2


def test_card_that_is_lost_while_a_quantity_fails(play: Play) -> None:
    """A card that falls off the bus is lost, though one quantity has failed before."""
    counter, card = pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_GPU_IS_LOST
    faults = (
        Fault(group="counter", kind="error", start_s=102.0, value=counter),
        Fault(group="samples", kind="error", start_s=105.0, value=card),
        Fault(group="light", kind="error", start_s=105.0, value=card),
        Fault(group="memory", kind="error", start_s=105.0, value=card),
    )
    bench = play(presets.h200(WAVE), faults=faults)
    bench.open()
    with pytest.raises(SourceLost):
        bench.run(10.0, patient=True)


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED])
def test_lost_card(play: Play, code: int) -> None:
    """A card that falls off the bus is lost for good, and closing it raises nothing."""
    fault = Fault(group="*", kind="error", start_s=105.0, value=code)
    bench = play(presets.h200(WAVE), faults=(fault,))
    bench.open()
    bench.run(4.9)
    bench.clock.sleep(0.5)

    with pytest.raises(SourceLost, match="NVIDIA H200 \\(gpu0\\) is gone"):
        bench.source.read()
    bench.source.close()


def test_unloaded_driver(play: Play) -> None:
    """NVML shut down under an open source loses it; that is no crash."""
    bench = play(presets.h200(WAVE))
    bench.open()
    pynvml.nvmlShutdown()

    with pytest.raises(SourceLost):
        bench.source.read()
    bench.source.close()


def test_card_keeps_its_key_when_it_is_opened_again(play: Play) -> None:
    """NVML's index of a card changes while another card is off the bus; the key stays."""
    off = Fault(group="bus", kind="error", start_s=105.0, card=0)
    bench = play(presets.h200(WAVE), presets.h200(WAVE), faults=(off,), uuid=card_uuid(1))
    bench.open()
    bench.time.set(1.7e9 + 106.0)

    assert {channel.device.key for channel in bench.source.open()} == {"gpu1"}
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(card_uuid(1))) == 0


def test_one_lost_card_leaves_the_other(play: Play) -> None:
    """Two sources share NVML: one that ends leaves the other working."""
    bench = play(presets.h200(WAVE), presets.h200(WAVE))
    other = NvmlSource(bench.clock, card_uuid(1))
    bench.open()
    other.open()
    other.close()

    bench.run(2.0)

    assert bench.of("power")


# --- opening


@pytest.mark.parametrize(
    ("code", "reason", "fix"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded", "modprobe nvidia"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "different versions", "restart the machine"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "has no permission", "/dev/nvidiactl"),
        (pynvml.NVML_ERROR_UNKNOWN, "NVML reports", "nvidia-smi"),
    ],
)
def test_driver_that_does_not_start(play: Play, code: int, reason: str, fix: str) -> None:
    """Whatever keeps NVML from starting, the error says what it is and what helps."""
    fault = Fault(group="init", kind="error", start_s=0.0, value=code)
    bench = play(presets.h200(WAVE), faults=(fault,))

    for call in (bench.open, inventory):
        with pytest.raises(SourceUnavailable) as refusal:
            call()
        assert reason in refusal.value.reason
        assert fix in refusal.value.fix


def test_without_library() -> None:
    """Where libnvidia-ml.so.1 is missing, the error says so and what helps."""
    import subprocess
    import sys

    code = (
        "from energy_callbacks.sensing.sources.nvidia.source import inventory\n"
        "from energy_callbacks.core.errors import SourceUnavailable\n"
        "try:\n    inventory()\n"
        "except SourceUnavailable as error:\n    print(error)\n"
    )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        pass
    else:
        pynvml.nvmlShutdown()
        pytest.skip("this machine has an NVIDIA driver")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "libnvidia-ml.so.1 is missing" in done.stdout
    assert "docker run --gpus all" in done.stdout


def test_unknown_uuid(play: Play) -> None:
    """A UUID that this machine does not have is refused with the way to list them."""
    bench = play(presets.h200(WAVE), uuid="GPU-99999999-0000-4000-8000-000000000000")

    with pytest.raises(SourceUnavailable, match="nvidia-smi -L"):
        bench.open()


# --- MIG and shared cards


def test_mig_uuid_opens_its_card(play: Play) -> None:
    """The UUID of a MIG instance opens the whole card, and the device says so."""
    card = presets.h200(Constant(300.0), mig_instances=MIGS)
    bench = play(presets.h200(Constant(100.0)), card, uuid=MIGS[1].uuid)

    device = bench.open()["power"].device
    bench.run(2.0)

    assert (device.key, device.uuid) == ("gpu1", card_uuid(1))
    assert (device.instances, device.instance_count) == ((MIGS[1].uuid,), 2)
    assert {reading.value for reading in bench.of("power")} == {300.0}


def test_old_mig_name_opens_its_card(play: Play) -> None:
    """A MIG name of the form that drivers before 470 use opens the card that it names."""
    card = presets.h200(WAVE, mig_instances=MIGS)
    bench = play(card, uuid=f"MIG-{card_uuid(0)}/1/0")

    device = bench.open()["power"].device

    assert device.uuid == card_uuid(0)
    assert (device.instances, device.instance_count) == ((f"MIG-{card_uuid(0)}/1/0",), 2)


def test_two_instances_open_their_card_once(play: Play) -> None:
    """A source for two MIG instances of a card is one for the card, and names both."""
    bench = play(presets.h200(WAVE, mig_instances=MIGS))
    source = NvmlSource(bench.clock, MIGS[0].uuid, MIGS[1].uuid)

    device = source.open()[0].device
    source.close()

    assert device.uuid == card_uuid(0)
    assert (device.instances, device.instance_count) == ((MIGS[0].uuid, MIGS[1].uuid), 2)


def test_whole_card_with_mig(play: Play) -> None:
    """A card that is split but opened as a whole names its instances' number, and none as used."""
    bench = play(presets.h200(WAVE, mig_instances=MIGS))

    device = bench.open()["power"].device

    assert (device.instances, device.instance_count) == ((), 2)


def test_other_processes_are_named(play: Play) -> None:
    """Other processes on the card are named; this one, its parents and children are not others."""
    processes = tuple(
        Process(pid=pid, used_bytes=2**30) for pid in (os.getpid(), os.getppid(), 2**22 + 5)
    )
    bench = play(presets.h200(WAVE, processes=processes))

    notes = bench.open()["power"].device.notes

    assert notes == ("shared card: in use by 1 or more processes outside this container",)


def test_process_of_someone_else(play: Play) -> None:
    """A process that is not related to this one is named by its number."""
    import subprocess
    import sys

    # A process whose parent has ended is nobody's child.
    code = "import subprocess as s; print(s.Popen(['sleep', '600'], stdout=-3, stderr=-3).pid)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    try:
        processes = (Process(pid=pid, used_bytes=1), Process(pid=os.getpid(), used_bytes=1))
        bench = play(presets.h200(WAVE, processes=processes))
        notes = bench.open()["power"].device.notes
    finally:
        os.kill(pid, 9)

    assert notes == (f"shared card: in use by other processes too: {pid}",)


# --- inventory


def test_inventory(play: Play) -> None:
    """The inventory lists every card with what is needed to choose one, and its MIG instances."""
    split = presets.h200(WAVE, mig_instances=MIGS)
    play(presets.a100(WAVE), split)

    first, second = inventory()

    assert (first.index, first.uuid, first.name) == (0, card_uuid(0), "NVIDIA A100-SXM4-80GB")
    assert (first.pci_bus_id, first.compute_capability) == ("00000000:17:00.0", (8, 0))
    assert first.memory_total_bytes == 80 * 2**30
    assert first.mig_uuids == ()
    assert second.mig_uuids == (MIGS[0].uuid, MIGS[1].uuid)


def test_inventory_leaves_out_a_lost_card(play: Play) -> None:
    """A card that does not answer is left out; the others keep their index."""
    code = pynvml.NVML_ERROR_GPU_IS_LOST
    fault = Fault(group="identity", kind="error", start_s=0.0, value=code, card=0)
    play(presets.h200(WAVE), presets.h200(WAVE), faults=(fault,))

    assert [gpu.index for gpu in inventory()] == [1]


def test_inventory_releases_nvml(play: Play) -> None:
    """After the inventory NVML is shut down again."""
    play(presets.h200(WAVE))
    inventory()

    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


@pytest.mark.parametrize("missing", [2**32 - 1, 2**64 - 1])
def test_all_ones_is_no_value(play: Play, monkeypatch: pytest.MonkeyPatch, missing: int) -> None:
    """All ones mean "not available": such a quantity is not offered, or has no reading."""
    bench = play(presets.h200(WAVE))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetClockInfo", lambda *_: missing)
    assert set(bench.open()) == ALL - CLOCKS

    bench.run(3.0)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTemperature", lambda *_: missing)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", lambda _: missing)
    bench.run(10.0)

    assert bench.times_s("temperature")[-1] < 103.5
    assert bench.times_s("energy")[-1] < 103.5


# --- asked for the newest values


def test_asked_now_the_newest_samples_come(play: Play) -> None:
    """An H200 that is asked has its samples up to 20 ms before, and none of them a second time."""
    bench = play(presets.h200(WAVE))
    bench.open()
    bench.run(10.0)
    newest_s = bench.times_s("power")[-1]
    bench.clock.sleep(0.3)
    now_s = bench.clock.monotonic_s()
    bench.readings += bench.source.read_now()
    times_s = bench.times_s("power")
    assert times_s == sorted(set(times_s))
    assert newest_s < now_s - 0.2
    assert now_s - times_s[-1] < 0.025


def test_asked_now_other_quantities_come_when_they_are_due(play: Play) -> None:
    """Right after a turn, an A100 that is asked has power, and no other quantity but energy."""
    bench = play(presets.a100(WAVE))
    bench.open()
    bench.run(5.0)
    found = {reading.channel.quantity for reading in bench.source.read_now()}
    assert "power" in found
    assert found <= {"power", "energy"}
