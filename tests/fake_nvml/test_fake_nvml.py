"""The fake NVML tells the truth that it was given, through the real ``pynvml``."""

import json
import math
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pynvml
import pytest

from tests.fake_nvml import (
    Buffer,
    CompileError,
    Constant,
    FakeNvml,
    Fault,
    Latency,
    Mig,
    Process,
    Recorded,
    Scenario,
    Sensor,
    Signal,
    Sine,
    Square,
    Staircase,
    a100,
    average_1s,
    build,
    card_uuid,
    env,
    fixtures,
    h200,
    ideal,
    pascal,
    v100,
)
from tests.fake_nvml.build import SOURCE_DIR
from tests.fake_nvml.scenario import Card

fake_nvml = fixtures.fake_nvml
Play = Callable[..., FakeNvml]

EPOCH_S = 1_790_000_000.0
SQUARE = Square(low_w=100.0, high_w=400.0, period_s=0.23, duty=0.4, phase_s=0.05)
SINE = Sine(mean_w=300.0, amplitude_w=120.0, period_s=0.37, phase_s=0.02)
STAIRCASE = Staircase(low_w=100.0, high_w=500.0, step_s=0.06, seed=7)
RECORDED = Recorded(((0.0, 80.0), (0.5, 420.0), (0.52, 90.0), (1.7, 330.0)))
SIGNALS = [Constant(250.0), SQUARE, SINE, STAIRCASE, RECORDED]
EACH_SIGNAL = pytest.mark.parametrize("signal", SIGNALS, ids=lambda s: type(s).__name__)


def start(play: Play, *cards: Card, faults: tuple[Fault, ...] = ()) -> tuple[FakeNvml, object]:
    """The scenario in virtual time at its epoch, and the first card's handle."""
    nvml = play(Scenario(cards=cards, faults=faults, epoch_unix_s=EPOCH_S))
    pynvml.nvmlInit()
    return nvml, pynvml.nvmlDeviceGetHandleByIndex(0)


def quiet(card: Card) -> Card:
    """The card with calls that cost nothing."""
    return replace(card, latency={})


def numeric_filter_w(signal: Signal, t_s: float, response_s: float) -> float:
    """First-order low-pass by the midpoint rule over 14 response times (forgets 8e-7)."""
    age_s = (np.arange(40_000) + 0.5) * (14.0 * response_s / 40_000)
    weight = np.exp(-age_s / response_s)
    power_w = np.array([signal.power_w(t_s - age) for age in age_s])
    return float((weight * power_w).sum() / weight.sum())


# The signals


@EACH_SIGNAL
def test_c_and_python_play_the_same_signal(fake_nvml: Play, signal: Signal) -> None:
    """Power and energy agree in C and Python, also before the epoch and a day after it."""
    nvml, _ = start(fake_nvml, ideal(signal))
    moments_s = np.concatenate([np.linspace(-2.0, 5.0, 211), [86_400.123, 86_401.5]]) + EPOCH_S
    for unix_s in moments_s:
        assert nvml.c_power_w(0, unix_s) == pytest.approx(
            nvml.scenario.power_w(0, unix_s), rel=1e-12
        )
        energy_j = nvml.c_energy_j(0, EPOCH_S - 1.0, unix_s)
        assert energy_j == pytest.approx(nvml.energy_j(0, EPOCH_S - 1.0, unix_s), abs=1e-6)


@EACH_SIGNAL
def test_energy_is_the_integral_of_power(signal: Signal) -> None:
    """The closed form equals a fine midpoint sum within the width of its steps at the edges."""
    step_s = 1e-4
    t_s = -0.4 + (np.arange(26_000) + 0.5) * step_s
    summed_j = sum(signal.power_w(t) for t in t_s) * step_s
    assert signal.energy_j(-0.4, 2.2) == pytest.approx(summed_j, rel=1e-4)


@EACH_SIGNAL
@pytest.mark.parametrize(("response_s", "times_s"), [(0.015, (0.31, 2.9)), (0.2, (0.515, 2.9))])
def test_the_low_pass_is_first_order(
    fake_nvml: Play, signal: Signal, response_s: float, times_s: tuple[float, ...]
) -> None:
    """The filter's closed form equals a numeric convolution within 0.1 W."""
    nvml, _ = start(fake_nvml, ideal(signal))
    for t_s in times_s:
        expected_w = numeric_filter_w(signal, t_s, response_s)
        assert nvml.c_filtered_w(0, EPOCH_S + t_s, response_s) == pytest.approx(expected_w, abs=0.1)


# The sensors


@EACH_SIGNAL
def test_counter_is_the_truth_at_its_updates(fake_nvml: Play, signal: Signal) -> None:
    """At each 100 ms update the counter has risen by the closed-form energy, to 1 mJ a reading."""
    nvml, card = start(fake_nvml, a100(signal, latency={}))
    first_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(card)
    for update in range(1, 60):
        nvml.time.set(EPOCH_S + update * 0.1)
        measured_j = (pynvml.nvmlDeviceGetTotalEnergyConsumption(card) - first_mj) / 1e3
        true_j = nvml.energy_j(0, EPOCH_S, EPOCH_S + update * 0.1)
        assert measured_j == pytest.approx(true_j, abs=2.1e-3)


def test_counter_stands_still_between_updates(fake_nvml: Play) -> None:
    """Readings within one 20 ms period are the same, and the next one differs."""
    nvml, card = start(fake_nvml, v100(Constant(200.0), latency={}))
    readings_mj = []
    for t_s in (0.1, 0.119999, 0.12):
        nvml.time.set(EPOCH_S + t_s)
        readings_mj.append(pynvml.nvmlDeviceGetTotalEnergyConsumption(card))
    assert readings_mj[1] == readings_mj[0]
    assert readings_mj[2] - readings_mj[0] == 4000


def test_updates_are_regular_across_the_epoch(fake_nvml: Play) -> None:
    """50 ms before the epoch the counter shows the energy of 100 ms before it, not of later."""
    nvml, card = start(fake_nvml, a100(Constant(200.0)))
    nvml.time.set(EPOCH_S - 0.05)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(card) == 1_000_000_000 - 20_000


def test_counter_may_carry_the_gain(fake_nvml: Play) -> None:
    """With ``counter_gained`` 200 W for 1 s at a gain of 0.95 and 4 W offset count 194 J."""
    sensor = Sensor(gain=0.95, offset_w=4.0, counter_gained=True, counter_start_j=0.0)
    nvml, card = start(fake_nvml, a100(Constant(200.0), sensor=sensor))
    nvml.time.advance(1.0)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(card) == 194_000


def test_readings_are_box_means_before_the_update(fake_nvml: Play) -> None:
    """Instant, average and usage show the last 25 ms and 1 s before the last 100 ms update."""
    nvml, card = start(fake_nvml, quiet(h200(SINE, sensor=Sensor())))
    nvml.time.set(EPOCH_S + 3.456)
    update_s = EPOCH_S + 3.4
    instant = pynvml.nvmlDeviceGetFieldValues(card, [186, (185, 0)])
    expected_w = nvml.energy_j(0, update_s - 0.025, update_s) / 0.025
    assert instant[0].value.uiVal / 1e3 == pytest.approx(expected_w, abs=2e-3)
    expected_w = nvml.energy_j(0, update_s - 1.0, update_s)
    assert instant[1].value.uiVal / 1e3 == pytest.approx(expected_w, abs=2e-3)
    assert pynvml.nvmlDeviceGetPowerUsage(card) / 1e3 == pytest.approx(expected_w, abs=2e-3)
    assert instant[0].timestamp == int((EPOCH_S + 3.456) * 1e6)


def test_gain_offset_and_ticks_change_the_reading(fake_nvml: Play) -> None:
    """100 W at a gain of 1.05, an offset of -2.5 W and ticks of 1 W reads 102 or 103 W."""
    sensor = Sensor(gain=1.05, offset_w=-2.6, power_tick_w=1.0)
    _, card = start(fake_nvml, a100(Constant(100.0), sensor=sensor))
    assert pynvml.nvmlDeviceGetPowerUsage(card) == 102_000


def read_buffer(card: object, newer_than_us: int = 0) -> list[tuple[int, float]]:
    """Stamps in Unix microseconds and power in watts."""
    kind, samples = pynvml.nvmlDeviceGetSamples(
        card, pynvml.NVML_TOTAL_POWER_SAMPLES, newer_than_us
    )
    assert kind == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
    return [(s.timeStamp, s.sampleValue.uiVal / 1e3) for s in samples]


def test_buffer_integral_is_the_truth(fake_nvml: Play) -> None:
    """Samples of a 1 s square wave, shifted back by lag and response, integrate to 0.5 %."""
    nvml, card = start(fake_nvml, quiet(h200(replace(SQUARE, period_s=1.0, duty=0.5))))
    nvml.time.advance(10.0)
    samples = read_buffer(card)
    t_s = np.array([stamp_us / 1e6 - EPOCH_S for stamp_us, _ in samples]) - 0.005 - 0.015
    power_w = np.array([power_w for _, power_w in samples])
    grid_s = np.linspace(7.8, 9.8, 20_001)  # two whole periods
    measured_j = np.trapezoid(np.interp(grid_s, t_s, power_w), grid_s)
    true_j = nvml.energy_j(0, EPOCH_S + 7.8, EPOCH_S + 9.8)
    assert measured_j == pytest.approx(true_j, rel=5e-3)


def test_buffer_is_as_the_h200_has_it(fake_nvml: Play) -> None:
    """120 samples, 20 +- 6 ms apart, the newest 3 to 26 ms old, at different phases."""
    nvml, card = start(fake_nvml, quiet(h200(SQUARE)))
    ages_s = []
    for _ in range(30):
        nvml.time.advance(0.1037)
        stamps_us = np.array([stamp_us for stamp_us, _ in read_buffer(card)])
        assert len(stamps_us) == 120
        assert np.all(np.abs(np.diff(stamps_us) - 20_000) <= 6_000)
        assert np.ptp(np.diff(stamps_us)) > 3_000
        ages_s.append(nvml.time.unix_s() - stamps_us[-1] / 1e6)
    assert min(ages_s) >= 0.003 - 1e-6
    assert max(ages_s) <= 0.003 + 0.026


def test_buffer_gives_only_what_is_new(fake_nvml: Play) -> None:
    """Reading on from the last stamp loses and repeats nothing, and nothing new is NOT_FOUND."""
    nvml, card = start(fake_nvml, h200(SQUARE))
    seen = read_buffer(card)
    with pytest.raises(pynvml.NVMLError_NotFound):
        read_buffer(card, seen[-1][0])
    for _ in range(20):
        nvml.time.advance(0.31)
        seen += read_buffer(card, seen[-1][0])
    assert np.all(np.abs(np.diff([stamp_us for stamp_us, _ in seen]) - 20_000) <= 6_000)


def test_buffer_samples_are_filtered_power(fake_nvml: Play) -> None:
    """A sample is the low-passed power ``lag_s`` before its stamp."""
    nvml, card = start(fake_nvml, quiet(h200(STAIRCASE)))
    for stamp_us, power_w in read_buffer(card)[-20:]:
        expected_w = nvml.c_filtered_w(0, stamp_us / 1e6 - 0.005, 0.015)
        assert power_w == pytest.approx(expected_w, abs=0.02)  # the stamp's 240 ns grain


@pytest.mark.parametrize(
    ("card", "offered"),
    [
        (h200(SQUARE), {"usage", "instant", "average", "counter", "samples"}),
        (a100(SQUARE), {"usage", "instant", "counter"}),
        (v100(SQUARE), {"usage", "instant", "counter"}),
        (pascal(SQUARE), {"usage"}),
        (average_1s(SQUARE), {"usage", "average", "counter"}),
        (ideal(SQUARE), {"usage", "instant", "average", "counter"}),
    ],
    ids=lambda value: value.name if isinstance(value, Card) else "",
)
def test_presets_offer_what_their_cards_offer(
    fake_nvml: Play, card: Card, offered: set[str]
) -> None:
    """What a card lacks answers NOT_SUPPORTED."""
    _, handle = start(fake_nvml, card)
    values = pynvml.nvmlDeviceGetFieldValues(handle, [186, 185, 83])
    found = {
        name
        for name, value in zip(("instant", "average", "counter"), values, strict=True)
        if value.nvmlReturn == pynvml.NVML_SUCCESS
    }
    for name, call in (
        ("usage", lambda: pynvml.nvmlDeviceGetPowerUsage(handle)),
        ("samples", lambda: read_buffer(handle)),
    ):
        try:
            call()
        except pynvml.NVMLError_NotSupported:
            continue
        found.add(name)
    assert found == offered


# Time and cost


def test_calls_cost_virtual_time_as_configured(fake_nvml: Play) -> None:
    """Of 2,000 counter calls the median costs 2.6 ms and the 99th percentile 20 ms, within 15 %."""
    nvml, card = start(fake_nvml, h200(SQUARE))
    costs_s = []
    sleeps = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    for _ in range(2000):
        before_s = nvml.time.unix_s()
        pynvml.nvmlDeviceGetTotalEnergyConsumption(card)
        costs_s.append(nvml.time.unix_s() - before_s)
    assert np.median(costs_s) == pytest.approx(2.6e-3, rel=0.15)
    assert np.percentile(costs_s, 99) == pytest.approx(20e-3, rel=0.15)
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - sleeps < 1000  # none slept


def test_field_reports_its_latency(fake_nvml: Play) -> None:
    """Each field's ``latencyUsec`` is the time that it took, and its stamp lies inside the call."""
    card = a100(SQUARE, latency={"counter": Latency(median_s=0.003, p99_s=0.003)})
    nvml, handle = start(fake_nvml, card)
    instant, counter = pynvml.nvmlDeviceGetFieldValues(handle, [186, 83])
    assert (instant.latencyUsec, counter.latencyUsec) == (0, 3000)
    assert counter.timestamp - EPOCH_S * 1e6 == 1500
    assert nvml.time.unix_s() == pytest.approx(EPOCH_S + 0.003, abs=1e-6)


def test_real_time_calls_take_real_time(fake_nvml: Play) -> None:
    """On the real clock a call of 20 ms does not return earlier, and power is that of now."""
    card = ideal(Constant(123.0), latency={"power": Latency(median_s=0.02, p99_s=0.02)})
    fake_nvml(Scenario(cards=(card,)), virtual=False)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    began_s = time.perf_counter()
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 123_000
    assert time.perf_counter() - began_s >= 0.0199


def test_threads_read_the_same_card(fake_nvml: Play) -> None:
    """Four threads that read a staircase's counter at one moment get one value."""
    nvml, card = start(fake_nvml, ideal(STAIRCASE))
    nvml.time.set(EPOCH_S + 5000.0)
    readings: list[int] = []

    def read() -> None:
        readings.extend(pynvml.nvmlDeviceGetTotalEnergyConsumption(card) for _ in range(200))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(readings) == 800
    assert len(set(readings)) == 1


# Failures


def test_errors_begin_and_end_at_their_times(fake_nvml: Play) -> None:
    """A lost GPU answers from 1 s to 2 s with GPU_IS_LOST to every call, before and after well."""
    lost = Fault(group="*", kind="error", start_s=1.0, end_s=2.0, value=15)
    nvml, card = start(fake_nvml, ideal(SQUARE), faults=(lost,))
    nvml.time.set(EPOCH_S + 0.999999)
    pynvml.nvmlDeviceGetPowerUsage(card)
    nvml.time.set(EPOCH_S + 1.0)
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetPowerUsage(card)
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetName(card)
    nvml.time.set(EPOCH_S + 2.0)
    pynvml.nvmlDeviceGetPowerUsage(card)


def test_a_card_leaves_the_bus_and_returns(fake_nvml: Play) -> None:
    """While a card is off the bus it is not listed, and its old handle fails; then it is back."""
    off = Fault(group="bus", kind="error", start_s=1.0, end_s=2.0, card=0)
    nvml, card = start(fake_nvml, ideal(SQUARE), ideal(SQUARE), faults=(off,))
    other = pynvml.nvmlDeviceGetHandleByIndex(1)
    nvml.time.set(EPOCH_S + 1.0)
    assert pynvml.nvmlDeviceGetCount() == 1
    assert pynvml.nvmlDeviceGetIndex(other) == 0
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetPowerUsage(card)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID(card_uuid(0))
    nvml.time.set(EPOCH_S + 2.0)
    assert pynvml.nvmlDeviceGetCount() == 2
    assert pynvml.nvmlDeviceGetIndex(other) == 1
    pynvml.nvmlDeviceGetPowerUsage(pynvml.nvmlDeviceGetHandleByUUID(card_uuid(0)))


def test_a_process_begins_and_ends_at_its_times(fake_nvml: Play) -> None:
    """A process is listed from its start to its end."""
    process = Process(pid=41, used_bytes=2**30, start_s=1.0, end_s=2.0)
    nvml, card = start(fake_nvml, ideal(SQUARE, processes=(process,)))
    listed = []
    for moment_s in (0.5, 1.0, 1.9, 2.0):
        nvml.time.set(EPOCH_S + moment_s)
        listed.append(len(pynvml.nvmlDeviceGetComputeRunningProcesses(card)))
    assert listed == [0, 1, 1, 0]


def test_an_error_of_one_group_leaves_the_others(fake_nvml: Play) -> None:
    """A failing counter is an error in its field alone, on the card that it names alone."""
    fault = Fault(group="counter", kind="error", start_s=0.0, value=999, card=0)
    _, first = start(fake_nvml, ideal(SQUARE), ideal(SQUARE), faults=(fault,))
    energy, power = pynvml.nvmlDeviceGetFieldValues(first, [83, 186])
    assert (energy.nvmlReturn, power.nvmlReturn) == (999, 0)
    pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(1))


def test_hang_takes_its_seconds(fake_nvml: Play) -> None:
    """A hang of 30 s moves virtual time by 30 s and no real time."""
    fault = Fault(group="power", kind="hang", start_s=1.0, end_s=2.0, value=30.0)
    nvml, card = start(fake_nvml, ideal(SQUARE), faults=(fault,))
    nvml.time.set(EPOCH_S + 1.5)
    pynvml.nvmlDeviceGetPowerUsage(card)
    assert nvml.time.unix_s() == pytest.approx(EPOCH_S + 31.5, abs=1e-6)


def test_counter_reset_jump_and_freeze(fake_nvml: Play) -> None:
    """At 100 W: 1 kJ jump at 1 s, stuck from 2 s to 3 s, back to 0 at 4 s."""
    faults = (
        Fault(group="counter", kind="add_j", start_s=1.0, value=1000.0),
        Fault(group="counter", kind="freeze", start_s=2.0, end_s=3.0),
        Fault(group="counter", kind="reset", start_s=4.0),
    )
    sensor = replace(ideal(SQUARE).sensor, counter_start_j=50.0)
    nvml, card = start(fake_nvml, ideal(Constant(100.0), sensor=sensor), faults=faults)
    readings_j = []
    for t_s in (0.5, 1.5, 2.5, 3.5, 4.5):
        nvml.time.set(EPOCH_S + t_s)
        readings_j.append(pynvml.nvmlDeviceGetTotalEnergyConsumption(card) / 1e3)
    assert readings_j == [100.0, 1200.0, 1250.0, 1400.0, 50.0]


def test_a_frozen_field_leaves_the_next_one_alive(fake_nvml: Play) -> None:
    """In one call the frozen counter stays behind while the power beside it moves on."""
    fault = Fault(group="counter", kind="freeze", start_s=0.0)
    ramp = Recorded(((0.0, 100.0), (10.0, 200.0)))
    nvml, card = start(fake_nvml, ideal(ramp), faults=(fault,))
    nvml.time.advance(5.0)
    energy, power = pynvml.nvmlDeviceGetFieldValues(card, [83, 186])
    assert (energy.value.ullVal, power.value.uiVal) == (1_000_000_000, 150_000)


def test_spike_is_in_the_readings_not_in_the_truth(fake_nvml: Play) -> None:
    """5 kW for 10 ms shows in the power reading then, and never in the counter."""
    fault = Fault(group="*", kind="spike_w", start_s=1.0, end_s=1.01, value=5000.0)
    nvml, card = start(fake_nvml, ideal(Constant(100.0)), faults=(fault,))
    nvml.time.set(EPOCH_S + 1.005)
    assert pynvml.nvmlDeviceGetPowerUsage(card) == 5_100_000
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(card) == 1_000_100_500
    nvml.time.set(EPOCH_S + 1.01)
    assert pynvml.nvmlDeviceGetPowerUsage(card) == 100_000


def test_buffer_faults_disturb_the_samples(fake_nvml: Play) -> None:
    """Stale, duplicate and unordered samples come while their fault lasts."""
    faults = (
        Fault(group="samples", kind="stale", start_s=1.0, end_s=2.0),
        Fault(group="samples", kind="duplicate", start_s=2.0, end_s=3.0),
        Fault(group="samples", kind="unordered", start_s=3.0, end_s=4.0),
    )
    nvml, card = start(fake_nvml, quiet(h200(SQUARE)), faults=faults)
    steps_us = []
    for t_s in (0.5, 1.5, 2.5, 3.5):
        nvml.time.set(EPOCH_S + t_s)
        samples = read_buffer(card, int((EPOCH_S + t_s - 0.4) * 1e6))
        steps_us.append(np.diff([stamp_us for stamp_us, _ in samples]))
    assert np.all(steps_us[0] > 0)
    assert len(steps_us[1]) == 119
    assert np.count_nonzero(steps_us[2] == 0) >= 3
    assert np.count_nonzero(steps_us[3] < 0) >= 8


def test_init_can_fail(fake_nvml: Play) -> None:
    """A driver mismatch at init is the error that it is on a real machine."""
    fault = Fault(group="init", kind="error", start_s=0.0, value=18)
    fake_nvml(Scenario(cards=(ideal(SQUARE),), faults=(fault,)))
    with pytest.raises(pynvml.NVMLError_LibRmVersionMismatch):
        pynvml.nvmlInit()


# The interface


def test_identity_of_a_card(fake_nvml: Play) -> None:
    """Handles by index, UUID and bus id are the same card, with its name, memory and limits."""
    _, card = start(fake_nvml, pascal(SQUARE), h200(SQUARE, memory_used_bytes=5 * 2**30))
    second = pynvml.nvmlDeviceGetHandleByUUID(card_uuid(1))
    bus_id = pynvml.nvmlDeviceGetPciInfo(second).busId
    assert bus_id == "00000000:18:00.0"
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId(bus_id[4:])) == 1
    assert pynvml.nvmlDeviceGetCount() == 2
    assert pynvml.nvmlDeviceGetName(second) == "NVIDIA H200"
    assert pynvml.nvmlDeviceGetArchitecture(second) == pynvml.NVML_DEVICE_ARCH_HOPPER
    assert pynvml.nvmlDeviceGetCudaComputeCapability(card) == (6, 0)
    assert pynvml.nvmlDeviceGetMemoryInfo(second).used == 5 * 2**30
    memory = pynvml.nvmlDeviceGetMemoryInfo(second, version=pynvml.nvmlMemory_v2)
    assert (memory.total, memory.free) == (141 * 2**30, 136 * 2**30)
    assert pynvml.nvmlDeviceGetPowerManagementLimitConstraints(card) == [125_000, 250_000]
    assert pynvml.nvmlSystemGetDriverVersion() == "580.159"
    assert pynvml.nvmlSystemGetCudaDriverVersion_v2() == 13000
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID("GPU-none")


def test_state_of_a_card_may_follow_a_signal(fake_nvml: Play) -> None:
    """Temperature, clocks and throttling change with time; throttled ns are their integral."""
    throttle = Square(low_w=0.0, high_w=1.0, period_s=1.0, duty=0.25)
    warming = Recorded(((0.0, 40.0), (10.0, 60.0)))
    card = ideal(SQUARE, power_throttle=throttle, temperature_c=warming, sm_clock_mhz=1200.0)
    nvml, handle = start(fake_nvml, card)
    nvml.time.advance(5.1)
    assert pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU) == 50
    assert pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU) == 50
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == 1200
    assert pynvml.nvmlDeviceGetUtilizationRates(handle).gpu == 50
    reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    assert reasons == pynvml.nvmlClocksEventReasonSwPowerCap
    throttled, hot = pynvml.nvmlDeviceGetFieldValues(handle, [74, 269])
    assert throttled.value.ullVal == pytest.approx(1.35e9, abs=1e3)
    assert hot.value.ullVal == 0


def test_unknown_fields_and_scopes_are_not_supported(fake_nvml: Play) -> None:
    """An unknown field or scope says so for itself and leaves its neighbours alone."""
    _, card = start(fake_nvml, h200(Constant(200.0)))
    values = pynvml.nvmlDeviceGetFieldValues(card, [9999, (186, 1), (185, 2), 190])
    refused = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert [value.nvmlReturn for value in values] == [refused, refused, 0, 0]
    assert [values[2].value.uiVal, values[3].value.uiVal] == [30_000, 700_000]


def test_mig_instances_have_a_parent(fake_nvml: Play) -> None:
    """A MIG instance has memory and processes of its own, and its power is its parent's."""
    instances = tuple(Mig(uuid=f"MIG-{i}", gpu_instance=7 + i) for i in range(2))
    processes = (Process(pid=41, used_bytes=2**30, gpu_instance=8, compute_instance=0),)
    _, card = start(fake_nvml, h200(SQUARE, mig_instances=instances, processes=processes))
    assert pynvml.nvmlDeviceGetMigMode(card) == [1, 1]
    second = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 1)
    assert pynvml.nvmlDeviceGetUUID(second) == "MIG-1"
    parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(second)
    assert pynvml.nvmlDeviceGetUUID(parent) == card_uuid(0)
    assert [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(second)] == [41]
    first = pynvml.nvmlDeviceGetHandleByUUID("MIG-0")
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(first) == []
    assert pynvml.nvmlDeviceGetMemoryInfo(first).total == 18 * 2**30
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetTotalEnergyConsumption(second)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 2)


def test_power_limit_is_stored_within_its_range(fake_nvml: Play) -> None:
    """A limit in the range is what the next call says, one outside is INVALID_ARGUMENT."""
    _, card = start(fake_nvml, a100(SQUARE))
    pynvml.nvmlDeviceSetPowerManagementLimit(card, 250_000)
    assert pynvml.nvmlDeviceGetEnforcedPowerLimit(card) == 250_000
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceSetPowerManagementLimit(card, 50_000)


def test_uninitialised_use_says_so(fake_nvml: Play) -> None:
    """After the last shutdown calls are UNINITIALIZED; inits are counted."""
    _, card = start(fake_nvml, ideal(SQUARE))
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    pynvml.nvmlDeviceGetPowerUsage(card)
    pynvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetPowerUsage(card)


def test_without_a_scenario_there_is_no_driver(
    fake_nvml: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed scenario leaves a process in which NVML is not found."""
    monkeypatch.delenv("FAKE_NVML_CONFIG", raising=False)
    nvml, _ = start(fake_nvml, ideal(SQUARE))
    nvml.close()
    with pytest.raises(pynvml.NVMLError_LibraryNotFound):
        pynvml.nvmlInit()


# Processes, compiler, mistakes

CHILD = """
import json, pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
kind, samples = pynvml.nvmlDeviceGetSamples(card, 0, 0)
print(json.dumps([
    pynvml.nvmlDeviceGetTotalEnergyConsumption(card),
    pynvml.nvmlDeviceGetPowerUsage(card),
    pynvml.nvmlDeviceGetFieldValues(card, [186])[0].value.uiVal,
    [[s.timeStamp, s.sampleValue.uiVal] for s in samples],
]))
"""


def child_reads(variables: dict[str, str]) -> list[object]:
    """What a process of its own reads with the plain ``pynvml``."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=variables, capture_output=True, text=True, check=True
    )
    return list(json.loads(done.stdout))


def test_processes_see_the_same_card(fake_nvml: Play) -> None:
    """Two children through LD_LIBRARY_PATH and this process read the same at the same time."""
    nvml, card = start(fake_nvml, quiet(h200(STAIRCASE)))
    nvml.time.advance(12.345)
    first, second = child_reads(nvml.env()), child_reads(nvml.env())
    assert first == second
    assert first[0] == pynvml.nvmlDeviceGetTotalEnergyConsumption(card)
    assert first[3] == [[stamp_us, round(w * 1e3)] for stamp_us, w in read_buffer(card)]


def test_child_in_real_time(tmp_path: Path) -> None:
    """Without virtual time a child sees samples of just now."""
    path = Scenario(cards=(h200(SQUARE),)).write(tmp_path / "scenario.txt")
    began_s = time.time()
    stamp_us = child_reads(env(path))[3][-1][0]  # type: ignore[index]
    assert began_s - 0.5 < stamp_us / 1e6 < time.time()


def test_compile_error_is_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken sources raise with the compiler's own words."""
    monkeypatch.setenv("FAKE_NVML_CACHE", str(tmp_path / "cache"))
    (tmp_path / "broken.c").write_text("int f(void) { return not_declared; }\n")
    with pytest.raises(CompileError, match="not_declared"):
        build(tmp_path)
    with pytest.raises(CompileError, match="install gcc"):
        build(SOURCE_DIR, compiler="no-such-compiler")


def test_parallel_builds_do_not_harm_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three builds at once into an empty cache give one usable library."""
    monkeypatch.setenv("FAKE_NVML_CACHE", str(tmp_path / "cache"))
    (tmp_path / "one.c").write_text("int one(void);\nint one(void) { return 1; }\n")
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(build(tmp_path))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 3
    assert len(set(paths)) == 1
    assert [path.name for path in paths[0].parent.iterdir()] == ["libnvidia-ml.so.1"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Square(low_w=1.0, high_w=2.0, period_s=0.0), "period_s got 0.0"),
        (lambda: Square(low_w=1.0, high_w=2.0, period_s=1.0, duty=0.0), "duty"),
        (lambda: Staircase(low_w=1.0, high_w=2.0, step_s=math.nan), "step_s got nan"),
        (lambda: Recorded(()), "no points"),
        (lambda: Recorded(((1.0, 5.0), (1.0, 6.0))), "do not increase"),
        (lambda: Latency(median_s=2.0, p99_s=1.0), "median_s <= p99_s"),
        (lambda: Buffer(jitter_s=0.01), "less than half"),
        (lambda: Buffer(depth=1000), "depth got 1000"),
    ],
)
def test_impossible_settings_are_refused(make: Callable[[], object], message: str) -> None:
    """What cannot be played raises at construction and says what to give."""
    with pytest.raises(ValueError, match=message):
        make()


def test_wrong_scenario_files_name_their_line(fake_nvml: Play) -> None:
    """The C reader refuses what it does not know, with line and word."""
    bad = Fault(group="nothing", kind="error", start_s=0.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r":5: unknown group or kind of fault in 'nothing"):
        fake_nvml(Scenario(cards=(ideal(SQUARE),), faults=(bad,)))
