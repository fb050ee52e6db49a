"""Energy of waiting for data, on scripted sensors and on cards of the fake library."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.metrics.data_wait import DataWaitEnergy
from energy_callbacks.accounting.metrics.step_counts import StepLog
from energy_callbacks.core.records import Device, Energy
from energy_callbacks.report import build
from energy_callbacks.sensing.estimation.cumulative_energy import Intervals
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.accounting import step_events
from tests.accounting.books import START_S, Books
from tests.fake_nvml import (
    FakeNvml,
    Scenario,
    Square,
    a100,
    fixtures,
    h200,
    pascal,
)
from tests.fake_nvml.presets import average_1s, v100
from tests.fake_nvml.test_fake_card import CardClock

fake_nvml = fixtures.fake_nvml
LIMIT_W = {h200: 700.0, a100: 400.0, v100: 300.0, pascal: 250.0, average_1s: 350.0}


@pytest.fixture
def clock() -> FakeClock:
    """Virtual time."""
    return FakeClock(start_s=START_S)


def scripted(clock: FakeClock, power_w: float = 200.0, **device: Any) -> ScriptedSource:
    """A sensor of constant power, which reports means since the previous reading."""
    owner = Device(**{"key": "gpu0", "kind": "gpu", "scope": "gpu", "name": "card"} | device)
    return ScriptedSource(
        clock,
        power_w=lambda t_s: power_w,
        energy_j=lambda t_s: power_w * t_s,
        kind="mean",
        device=owner,
    )


def waited(books: Books, key: str = "gpu0") -> Energy:
    """Energy of waiting in the totals."""
    return journal.energy_from_json(books.of("totals")[0]["data_wait"]["energy"][key])


def loop(books: Books, *, steps: int, wait_s: float, work_s: float) -> None:
    """Steps that first wait, then work."""
    log, clock = books.recorder.steps, books.clock
    books.enter("train")
    step_events.done(log, clock.monotonic_s())
    for _ in range(steps):
        clock.advance(wait_s)
        step_events.ready(log, clock.monotonic_s())
        clock.advance(work_s)
        books.step()
    books.leave("train")


def test_constant_power_waits_at_that_power(tmp_path: Path, clock: FakeClock) -> None:
    """40 waits of 0.13 s at 200 W are 1040 J, wherever the readings are."""
    books = Books(tmp_path, scripted(clock), clock=clock)
    loop(books, steps=40, wait_s=0.13, work_s=0.24)
    books.finish()
    found = waited(books)
    assert found.energy_j == pytest.approx(200.0 * 40 * 0.13, rel=1e-9)
    assert found.coverage == pytest.approx(1.0, rel=1e-9)
    assert books.of("totals")[0]["data_wait"]["duration_s"] == pytest.approx(40 * 0.13)


def test_what_nobody_told_of_is_not_in_the_journal(tmp_path: Path, clock: FakeClock) -> None:
    """Without marks of data the energy of waiting is unknown, not 0 J."""
    books = Books(tmp_path, scripted(clock), clock=clock)
    for _ in range(100):
        clock.advance(0.2)
        books.step()
    books.finish()
    assert not any("data_wait" in line for line in (*books.of("so_far"), *books.of("totals")))


def test_no_waiting_is_no_energy(tmp_path: Path, clock: FakeClock) -> None:
    """A loader without waits used 0 J, which is a known value."""
    books = Books(tmp_path, scripted(clock), clock=clock)
    loop(books, steps=40, wait_s=0.0, work_s=0.24)
    books.finish()
    assert (waited(books).energy_j, waited(books).coverage) == (0.0, 1.0)


def test_a_killed_run_knows_its_waits_up_to_ten_seconds_before(
    tmp_path: Path, clock: FakeClock
) -> None:
    """Lines ``so_far`` contain the seconds and joules of waiting so far."""
    books = Books(tmp_path, scripted(clock), clock=clock)
    loop(books, steps=300, wait_s=0.05, work_s=0.05)
    lines = [line["data_wait"] for line in books.of("so_far")]
    assert len(lines) >= 2
    for line in lines:
        one = journal.energy_from_json(line["energy"]["gpu0"])
        assert one.energy_j / one.coverage == pytest.approx(200.0 * line["duration_s"], rel=0.1)
    assert lines[-1]["duration_s"] > lines[0]["duration_s"] + 4.0


def test_a_wait_that_goes_on_is_counted_when_it_has_ended(tmp_path: Path, clock: FakeClock) -> None:
    """A wait of 20 s, longer than any sensor lag, is counted completely."""
    books = Books(tmp_path, scripted(clock), clock=clock)
    loop(books, steps=3, wait_s=20.0, work_s=1.0)
    books.finish()
    assert waited(books).energy_j == pytest.approx(200.0 * 60.0, rel=1e-9)
    assert waited(books).coverage == pytest.approx(1.0, rel=1e-9)


def test_a_gap_of_the_sensor_lowers_the_coverage(tmp_path: Path, clock: FakeClock) -> None:
    """A sensor that opens in the middle covers half of the waits."""
    books, source = Books(tmp_path, clock=clock), scripted(clock)
    books.timeline.register(source.open())
    log = books.recorder.steps
    books.enter("train")
    for number in range(40):
        step_events.done(log, clock.monotonic_s())
        for _ in range(5):
            clock.advance(0.1)
            if number >= 20:
                books.timeline.extend(source.read())
        step_events.ready(log, clock.monotonic_s())
    books.leave("train")
    books.finish()
    assert waited(books).coverage == pytest.approx(0.5, abs=0.02)
    assert waited(books).energy_j == pytest.approx(200.0 * 10.0, rel=0.02)


def test_waits_that_are_accounted_for_are_forgotten(tmp_path: Path, clock: FakeClock) -> None:
    """Only waits that sensors have not reported yet are kept in memory."""
    books = Books(tmp_path, scripted(clock), clock=clock)
    books.timeline.register(scripted(clock, key="gpu1").open())
    loop(books, steps=3000, wait_s=0.05, work_s=0.05)
    assert len(books.recorder._measured._waiting._waits) <= 10 * 121
    assert len(books.recorder.steps._waits) <= 10


class Drawn:
    """A timeline with one device, which returns its intervals in parts."""

    def __init__(
        self, intervals: Intervals, limit_w: float | None, used_since_s: float = -math.inf
    ) -> None:
        self.found = intervals
        self._used_since_s = used_since_s
        self.devices = (Device(key="gpu0", kind="gpu", scope="gpu", name="card", limit_w=limit_w),)
        self.metered = ("gpu0",)

    def intervals(self, key: str, start_s: float, end_s: float) -> Intervals | None:
        return self.found if start_s < self.found.t_s[-1] <= end_s else None

    def used_since_s(self, key: str) -> float:
        return self._used_since_s


@pytest.mark.parametrize(("edge_j", "expected_j"), [(0.0, 200.0), (300.0, 588.0)])
def test_the_bound_is_what_no_reading_excludes(edge_j: float, expected_j: float) -> None:
    """10 s at 100 W and a limit of 100 W: 2 s of waiting may have had up to 280 J, or nothing.

    Where energy may have moved across the edges of the 10 s, 95 % of that is more.
    """
    log = StepLog(0.0)
    step_events.done(log, 2.0)
    step_events.ready(log, 4.0)
    one = Intervals(
        t_s=np.array([0.0, 10.0]),
        energy_j=np.array([1000.0]),
        noise_j2=np.zeros(1),
        edge_j2=np.array([edge_j**2]),
        is_counted=np.zeros(1, bool),
        seen_s=np.array([10.0]),
        method="counter",
        relative_error=0.0,
    )
    waiting = DataWaitEnergy(Drawn(one, limit_w=100.0), log, 0.0)
    waiting.update(20.0)
    found = waiting.record()["data_wait"]["energy"]["gpu0"]
    assert found["energy_j"] == pytest.approx(200.0)
    # 1.4 times the limit for 2 s is 280 J; the rest of the interval can hold all 1000 J.
    assert found["edge_j"] == pytest.approx(expected_j)
    assert (found["stderr_j"], found["systematic_j"]) == (0.0, 0.0)


def test_of_a_wait_only_the_part_after_a_device_joins_counts() -> None:
    """Of waits from 2 to 4 and 6 to 8 s, a device that joins at 3 s has seen 3 s."""
    log = StepLog(0.0)
    for done_s, ready_s in ((2.0, 4.0), (6.0, 8.0)):
        step_events.done(log, done_s)
        step_events.ready(log, ready_s)
    one = Intervals(
        t_s=np.array([3.0, 10.0]),
        energy_j=np.array([700.0]),
        noise_j2=np.zeros(1),
        edge_j2=np.zeros(1),
        is_counted=np.zeros(1, bool),
        seen_s=np.array([7.0]),
        method="counter",
        relative_error=0.0,
    )
    waiting = DataWaitEnergy(Drawn(one, limit_w=100.0, used_since_s=3.0), log, 0.0)
    waiting.update(20.0)
    found = waiting.record()["data_wait"]["energy"]["gpu0"]
    assert found["energy_j"] == pytest.approx(300.0)
    assert found["coverage"] == 1.0


LOADS = [
    (2.5, 1.0),
    (1.03, 0.3),
    (0.5, 0.2),
    (0.23, 0.05),
    (0.31, 0.001),
    (0.1, 0.02),
    (0.021, 0.007),
]


PRESETS = (h200, a100, v100, pascal, average_1s)
ALL = [(preset, load, is_busy) for preset in PRESETS for load in LOADS for is_busy in (False, True)]
# Each card with some of the loads, each load with some of the cards, either of them busy and not.
SOME = ALL[::3]


@pytest.mark.parametrize(("preset", "load", "is_busy"), SOME)
def test_the_truth_lies_in_the_interval_although_waits_keep_step_with_the_load(
    fake_nvml, tmp_path: Path, preset, load: tuple[float, float], *, is_busy: bool
) -> None:
    """Cards that draw little, or most, exactly while the host waits; the gain of sensors is 1."""
    check_interval(fake_nvml, tmp_path, preset, load, is_busy=is_busy)


@pytest.mark.slow(reason="46 trainings of half a minute: other pairs of the same kinds")
def test_the_truth_lies_in_the_interval_for_every_pair_of_card_and_load(
    fake_nvml, tmp_path: Path
) -> None:
    """All other pairs."""
    for number, (preset, load, is_busy) in enumerate(one for one in ALL if one not in SOME):
        check_interval(fake_nvml, tmp_path / str(number), preset, load, is_busy=is_busy)


def check_interval(
    fake_nvml, folder: Path, preset, load: tuple[float, float], *, is_busy: bool
) -> None:
    """The interval contains the true energy, with and without the error of the gain."""
    waits, found = measured(fake_nvml, folder, preset, load, is_busy=is_busy)
    assert abs(found.energy_j - waits) <= found.error_j
    if preset in (h200, a100, v100):
        # The first wait begins before the first reading, and energy without readings is left out.
        assert abs(found.energy_j - found.coverage * waits) <= found.resolution_j


@pytest.mark.parametrize(
    ("preset", "most"), [(h200, 0.06), (v100, 0.06), (a100, 0.07), (average_1s, 0.1)]
)
def test_a_loader_that_stalls_for_a_second_is_told_well(
    fake_nvml, tmp_path: Path, preset, most: float
) -> None:
    """Waits of 1 s every 2.5 s at a sixth of the power are known to some per cent."""
    waits, found = measured(fake_nvml, tmp_path, preset, (2.5, 1.0), is_busy=False)
    assert found.energy_j == pytest.approx(waits, rel=most)
    told = build(tmp_path).throughput
    assert told.data_wait.gpu.is_resolved
    assert told.data_wait.gpu.low_j <= waits <= told.data_wait.gpu.high_j
    assert told.data_wait_s == pytest.approx(11.0, abs=1e-6)  # and one that no step came after


def test_waits_below_the_sensor_are_bounded_and_not_told(fake_nvml, tmp_path: Path) -> None:
    """Waits of 1 ms every 310 ms have an upper bound of 1 % of the training, and no figure."""
    waits, _ = measured(fake_nvml, tmp_path, h200, (0.31, 0.001), is_busy=False)
    report = build(tmp_path)
    told = report.throughput.data_wait.gpu
    assert not told.is_resolved
    assert told.low_j <= waits <= told.high_j
    train_j = next(phase.gpu.energy_j for phase in report.phases if phase.name == "train")
    assert told.high_j < 0.01 * train_j


def measured(
    fake_nvml, folder: Path, preset, load: tuple[float, float], *, is_busy: bool
) -> tuple[float, Energy]:
    """True joules of waiting in half a minute on a card, and those of the journal."""
    period_s, wait_s = load
    low_w, high_w = 0.15 * LIMIT_W[preset], 0.9 * LIMIT_W[preset]
    if is_busy:
        low_w, high_w = high_w, low_w
    signal = Square(low_w=low_w, high_w=high_w, period_s=period_s, duty=1.0 - wait_s / period_s)
    nvml: FakeNvml = fake_nvml(Scenario(cards=(preset(signal),)))
    clock = CardClock(nvml.time)
    meter = EnergyMeter(config=EnergyConfig(report_dir=folder, devices=[0]), clock=clock).start()
    truth_j = []
    with meter.phase("train"):
        meter.data_ready()
        for start_s in starts(period_s):
            begun_s, ready_s = start_s + period_s - wait_s, start_s + period_s
            clock.advance(max(begun_s - clock.monotonic_s(), 0.0))
            meter.step(samples=1)
            meter.batch_done(begun_s)
            clock.advance(max(ready_s - clock.monotonic_s(), 0.0))
            meter.data_ready(ready_s)
            truth_j.append(signal.energy_j(begun_s, ready_s))
    meter.stop()
    [path] = folder.glob("attempts/1/*.jsonl")
    [totals] = [line for line in journal.read(path) if line["type"] == "totals"]
    return math.fsum(truth_j), journal.energy_from_json(totals["data_wait"]["energy"]["gpu0"])


def starts(period_s: float) -> Iterator[float]:
    """Starts of the periods from 2 s to 32 s."""
    first = math.ceil(2.0 / period_s)
    yield from (number * period_s for number in range(first, first + int(30.0 / period_s)))
