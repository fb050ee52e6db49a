"""Figures beside the loss, from scripted sensors on virtual time."""

import math
from pathlib import Path

import pytest

from energy_callbacks.accounting.metrics.tags import INTERVALS, TAGS
from energy_callbacks.core.records import Device, Reading
from energy_callbacks.testing import FakeClock, ReplaySource, ScriptedSource
from tests.accounting import step_events
from tests.accounting.books import CPU, START_S, Books, wave
from tests.sensing.loads import channel

GPU1 = Device(key="gpu1", kind="gpu", scope="gpu", name="second GPU")


@pytest.fixture
def clock() -> FakeClock:
    """Virtual time."""
    return FakeClock(start_s=START_S)


def constant(clock: FakeClock, power_w: float, device: Device | None = None) -> ScriptedSource:
    """A sensor of constant power."""
    return ScriptedSource(
        clock, power_w=lambda _: power_w, energy_j=lambda t: power_w * t, kind="mean", device=device
    )


def steady(
    books: Books, seconds: int, samples: float | None = 64, tokens: float | None = 640
) -> None:
    """Train with a step every second."""
    for _ in range(seconds):
        books.clock.advance(1.0)
        books.step(samples=samples, tokens=tokens)


def test_a_row_that_was_not_kept_ready_is_the_same(tmp_path: Path, clock: FakeClock) -> None:
    """Without requests for half a minute nothing is computed, and the next row is complete."""
    lazy = Books(tmp_path / "lazy", constant(clock, 200.0), clock=clock)
    eager = Books(tmp_path / "eager", constant(clock, 200.0), clock=clock)
    for books in (lazy, eager):
        books.enter("train")
    for _ in range(30):
        clock.advance(1.0)
        for books in (lazy, eager):
            books.step(samples=64, tokens=640)
        eager.board.ask()
    clock.advance(0.5)
    assert lazy.board._ready is None
    ready = eager.board._ready
    assert ready is not None
    assert lazy.board.take() == ready.values
    assert lazy.board.used == eager.board.used is not None


def test_who_asks_often_finds_a_row_ready(tmp_path: Path, clock: FakeClock) -> None:
    """Ten seconds after the last request, rows are no longer prepared."""
    books = Books(tmp_path, constant(clock, 200.0), clock=clock)
    books.enter("train")
    steady(books, 20)
    books.board.take()
    for seconds, is_ready in ((2, True), (5, True), (20, False)):
        before = books.board._ready
        steady(books, seconds)
        ready = books.board._ready
        assert ready is not None
        assert (ready.tally.steps == books.recorder.steps.tally.steps) == is_ready
        assert (ready is not before) or not is_ready


def test_a_row_that_is_being_worked_out_is_not_waited_for(tmp_path: Path, clock: FakeClock) -> None:
    """While the journal's thread computes, the training thread gets the previous row."""
    books = Books(tmp_path, constant(clock, 200.0), clock=clock)
    books.enter("train")
    steady(books, 20)
    first = books.board.take()
    with books.board._renewing:
        steady(books, 20)
        assert books.board.take() == first
    assert books.board.take()["energy/gpu_wh"] > first["energy/gpu_wh"]


def test_joules_per_sample_are_watts_over_samples_per_second(
    tmp_path: Path, clock: FakeClock
) -> None:
    """200 W and 64 samples per second are 3.125 J per sample, inside the interval."""
    books = Books(tmp_path, constant(clock, 200.0), constant(clock, 56.0, CPU), clock=clock)
    books.enter("train")
    steady(books, 20)
    clock.advance(0.5)
    scalars = books.board.take()
    expected = {
        "efficiency/gpu_j_per_sample": 3.125,
        "efficiency/gpu_j_per_step": 200.0,
        "efficiency/gpu_j_per_token": 0.3125,
        "efficiency/total_j_per_sample": 4.0,
        "throughput/samples_per_s": 64.0,
        "throughput/tokens_per_s": 640.0,
        "power/gpu_w": 200.0,
        "power/host_w": 56.0,
        "energy/measured_fraction": 1.0,
    }
    assert {tag: scalars[tag] for tag in expected} == pytest.approx(expected, rel=1e-6)
    for tag in expected:
        if tag in INTERVALS:
            assert scalars[f"{tag}_lo"] <= scalars[tag] <= scalars[f"{tag}_hi"]


def test_a_sensor_of_the_whole_machine_is_the_total(tmp_path: Path, clock: FakeClock) -> None:
    """A machine of 400 W has a GPU of 200 W and a CPU of 56 W; budgets and totals use 400 W."""
    machine = Device(key="machine", kind="machine", scope="machine", name="board")
    powers_w = ((200.0, None), (56.0, CPU), (400.0, machine))
    books = Books(tmp_path, *(constant(clock, *one) for one in powers_w), clock=clock)
    books.enter("train")
    steady(books, 20)
    clock.advance(0.5)
    scalars = books.board.take()
    assert scalars["power/gpu_w"] == pytest.approx(200.0)
    assert scalars["power/host_w"] == pytest.approx(56.0)
    assert scalars["energy/total_wh"] == pytest.approx(2.0 * scalars["energy/gpu_wh"])
    assert scalars["efficiency/total_j_per_sample"] == pytest.approx(400.0 / 64.0)
    assert scalars["energy/measured_fraction"] == 1.0
    assert books.board.used is not None
    assert books.board.used.power_w == pytest.approx(400.0)
    assert books.board.used_j["total"] == books.board.used_j["machine"] == books.board.used.energy_j


def test_the_interval_of_an_efficiency_is_that_of_its_energy(
    tmp_path: Path, clock: FakeClock
) -> None:
    """A sensor with an error of 10 % results in 3.125 J per sample and about 10 % either way."""
    of = channel("power", "mean", period_s=0.1, relative_error=0.1)
    readings = [Reading(of, START_S + 0.1 * i, 200.0) for i in range(300)]
    books = Books(tmp_path, ReplaySource(clock, [of], readings, interval_s=0.1), clock=clock)
    books.enter("train")
    steady(books, 20)
    clock.advance(0.5)
    scalars = books.board.take()
    assert 0.88 * 3.125 < scalars["efficiency/gpu_j_per_sample_lo"] < 0.9 * 3.125
    assert 1.1 * 3.125 < scalars["efficiency/gpu_j_per_sample_hi"] < 1.12 * 3.125


def test_each_span_is_that_since_the_last_time(tmp_path: Path, clock: FakeClock) -> None:
    """With 100 W and then 300 W, the second row has 300 W only."""
    half_s = START_S + 20.0
    source = ScriptedSource(
        clock,
        power_w=lambda t: 100.0 if t < half_s else 300.0,
        energy_j=lambda t: 100.0 * t + 200.0 * max(t - half_s, 0.0),
        kind="mean",
    )
    books = Books(tmp_path, source, clock=clock)
    books.enter("train")
    steady(books, 20)
    clock.advance(0.5)
    first = books.board.take()
    steady(books, 20)
    clock.advance(0.5)
    second = books.board.take()
    assert first["efficiency/gpu_j_per_step"] == pytest.approx(100.0, rel=1e-6)
    assert second["efficiency/gpu_j_per_step"] == pytest.approx(300.0 * 20.5 / 20.0, rel=0.03)
    assert second["energy/gpu_wh"] == pytest.approx(8000.0 / 3600.0, rel=0.03)


def test_without_news_the_figures_are_the_same(tmp_path: Path, clock: FakeClock) -> None:
    """Two requests return the same figures; before any reading there are none."""
    books = Books(tmp_path, constant(clock, 200.0), clock=clock)
    assert books.board.take() == {}
    books.enter("train")
    steady(books, 5)
    clock.advance(0.5)
    first = books.board.take()
    first_again = books.board.take()
    first_again["power/gpu_w"] = 0.0
    assert books.board.take() == first
    assert first["power/gpu_w"] == pytest.approx(200.0)


def test_training_figures_stay_while_no_step_ends(tmp_path: Path, clock: FakeClock) -> None:
    """In a long validation the power changes, and the last figures per sample remain."""
    books = Books(tmp_path, wave(clock), clock=clock)
    books.enter("train")
    steady(books, 5)
    clock.advance(0.5)
    first = books.board.take()
    books.enter("validation")
    clock.advance(30.0)
    later = books.board.take()
    assert later["efficiency/gpu_j_per_sample"] == first["efficiency/gpu_j_per_sample"]
    assert later["energy/gpu_wh"] > first["energy/gpu_wh"]


def test_validation_is_not_in_joules_per_sample(tmp_path: Path, clock: FakeClock) -> None:
    """Ten seconds of validation change the total energy, but not joules per sample."""
    books = Books(tmp_path, constant(clock, 200.0), clock=clock)
    books.enter("train")
    steady(books, 5)
    books.enter("validation")
    clock.advance(10.0)
    books.leave("validation")
    steady(books, 5)
    clock.advance(0.5)
    scalars = books.board.take()
    assert scalars["efficiency/gpu_j_per_sample"] == pytest.approx(3.125, rel=1e-6)
    assert scalars["throughput/samples_per_s"] == pytest.approx(64.0, rel=1e-6)
    assert scalars["energy/gpu_wh"] == pytest.approx(200.0 * 20.0 / 3600.0, rel=0.03)


def test_without_a_gpu_there_are_no_gpu_tags(tmp_path: Path, clock: FakeClock) -> None:
    """Without a GPU its tags are absent, not zero; the totals are there."""
    books = Books(tmp_path, constant(clock, 28.0, CPU), clock=clock)
    books.enter("train")
    steady(books, 5)
    clock.advance(0.5)
    scalars = books.board.take()
    assert not [tag for tag in scalars if "gpu" in tag or "device" in tag or "allocated" in tag]
    assert scalars["efficiency/total_j_per_sample"] == pytest.approx(28.0 / 64.0, rel=1e-6)


def test_what_nobody_counts_is_absent(tmp_path: Path, clock: FakeClock) -> None:
    """Without samples and tokens there are only figures per step."""
    books = Books(tmp_path, constant(clock, 200.0), clock=clock)
    books.enter("train")
    steady(books, 5, samples=None, tokens=None)
    clock.advance(0.5)
    scalars = books.board.take()
    assert scalars["efficiency/gpu_j_per_step"] == pytest.approx(200.0, rel=1e-6)
    assert not [tag for tag in scalars if "sample" in tag or "token" in tag or "wait" in tag]


def test_waiting_is_a_share_of_training(tmp_path: Path, clock: FakeClock) -> None:
    """Waiting for a quarter of every second is a share of 0.25."""
    books = Books(tmp_path, constant(clock, 200.0), clock=clock)
    books.enter("train")
    for _ in range(40):
        clock.advance(0.25)
        step_events.ready(books.recorder.steps, clock.monotonic_s())
        clock.advance(0.75)
        books.step()
    clock.advance(0.5)
    assert books.board.take()["throughput/data_wait_fraction"] == pytest.approx(0.25, abs=0.01)


def test_estimated_energy_is_not_called_measured(tmp_path: Path, clock: FakeClock) -> None:
    """150 W from a sensor and 50 W from a model are a measured share of 0.75."""
    model = Device(key="cpu", kind="cpu", scope="host", name="model", origin="estimated")
    books = Books(tmp_path, constant(clock, 150.0), constant(clock, 50.0, model), clock=clock)
    clock.advance(5.0)
    assert books.board.take()["energy/measured_fraction"] == pytest.approx(0.75, rel=1e-6)


def test_emissions_follow_the_energy(tmp_path: Path, clock: FakeClock) -> None:
    """An unknown place has an interval only; a known one has all three values, in grams."""
    books = Books(tmp_path, constant(clock, 360.0), clock=clock)
    books.board.emissions_kg = lambda energy: (None, energy.energy_j / 4e6, energy.energy_j / 1e6)  # type: ignore[operator]
    clock.advance(10.0)
    scalars = books.board.take()
    assert "emissions/total_g" not in scalars
    energy_wh = scalars["energy/total_wh"]
    assert scalars["emissions/total_g_lo"] == pytest.approx(energy_wh * 3600.0 / 4e6 * 1e3)
    assert scalars["emissions/total_g_hi"] == pytest.approx(energy_wh * 3600.0 / 1e6 * 1e3)
    books.board.emissions_kg = lambda energy: (1e-3, None, None)
    clock.advance(10.0)
    scalars = books.board.take()
    assert scalars["emissions/total_g"] == 1.0


def test_totals_in_rows_never_fall(tmp_path: Path, clock: FakeClock) -> None:
    """Power readings of 400 W are corrected by a counter of 300 W after 5 s."""
    power, counter = channel("power", "gauge"), channel("energy", "counter")
    readings = [Reading(power, START_S + 0.1 * i, 400.0) for i in range(200)]
    readings += [Reading(counter, START_S + 5.0 * i, 1500.0 * i) for i in range(5)]
    source = ReplaySource(clock, [power, counter], readings, interval_s=0.1)
    books = Books(tmp_path, source, clock=clock)
    books.board.emissions_kg = lambda energy: (energy.energy_j, energy.energy_j, energy.energy_j)
    rows = []
    for _ in range(18):
        steady(books, 1)
        rows.append(books.board.take())
    for tag in ("energy/gpu_wh", "energy/total_wh", "emissions/total_g", "emissions/total_g_hi"):
        values = [row[tag] for row in rows if row]
        assert values == sorted(values)
        assert values[4] == values[5] < values[6]
    assert books.board.whole()["energy/gpu_wh"] == pytest.approx(1.5, rel=0.01)


def gauges(clock: FakeClock) -> ReplaySource:
    """Two cards and a process with all quantities."""
    gpus = (channel("power", "mean").device, GPU1)
    process = Device(key="process", kind="process", scope=None, name="process")
    values = {
        ("memory_used", 0): 2 * 2**30, ("memory_used", 1): 3 * 2**30,
        ("utilisation", 0): 0.5, ("utilisation", 1): 0.9,
        ("sm_active", 0): 0.4, ("sm_active", 1): 0.6, ("sm_occupancy", 0): 0.125,
        ("tensor_active", 0): 0.3, ("dram_active", 1): 0.7,
        ("temperature", 0): 51.0, ("temperature", 1): 63.0,
        ("memory_utilisation", 0): 0.2, ("memory_utilisation", 1): 0.6,
        ("clock", 0): 1.98e9, ("clock", 1): 1.0e9,
        ("memory_clock", 0): 3.2e9, ("memory_clock", 1): 1.6e9,
        ("peak_allocated", 0): 2**30,
        ("power_limit", 0): 700.0, ("power_limit", 1): 600.0,
    }  # fmt: skip
    readings = [
        Reading(channel(quantity, "gauge", gpus[card]), START_S + t_s, value)
        for (quantity, card), value in values.items()
        for t_s in (0.5, 1.5, 2.5)
    ]
    readings += [Reading(channel("rss", "gauge", process), START_S + 1.0, 4 * 2**30)]
    throttled = channel("throttled", "counter", GPU1)
    readings += [Reading(throttled, START_S + t, 0.25 * t) for t in (0.1, 1.0, 2.0, 3.9)]
    watts = channel("power", "mean", gpus[0])
    readings += [Reading(watts, START_S + 0.1 * i, 100.0) for i in range(45)]
    return ReplaySource(clock, list(dict.fromkeys(r.channel for r in readings)), readings)


def test_gauges_are_one_figure_for_all_cards(tmp_path: Path, clock: FakeClock) -> None:
    """Memory is summed, clocks and utilisation are averaged, temperature is the highest."""
    books = Books(tmp_path, gauges(clock), clock=clock)
    clock.advance(4.0)
    scalars = books.board.take()
    expected = {
        "memory/device_used_gib": 5.0,
        "memory/peak_allocated_gib": 1.0,
        "memory/host_rss_gib": 4.0,
        "gpu/utilisation": 0.7,
        "gpu/sm_active": 0.5,
        "gpu/sm_occupancy": 0.125,
        "gpu/tensor_active": 0.3,
        "gpu/dram_active": 0.7,
        "gpu/temperature_c": 63.0,
        "gpu/memory_utilisation": 0.4,
        "gpu/sm_clock_mhz": 1490.0,
        "gpu/memory_clock_mhz": 2400.0,
        "gpu/power_limit_w": 650.0,
    }
    assert {tag: scalars[tag] for tag in expected} == pytest.approx(expected)
    assert scalars["gpu/throttled_fraction"] == pytest.approx(0.25, abs=0.02)


def test_every_tag_that_is_made_is_described(tmp_path: Path, clock: FakeClock) -> None:
    """Tags are those of ``TAGS``, with ``_lo`` and ``_hi`` for efficiencies and emissions only."""
    books = Books(tmp_path, gauges(clock), constant(clock, 50.0, CPU), clock=clock)
    books.board.emissions_kg = lambda _: (2e-3, 1e-3, 3e-3)
    books.enter("train")
    for _ in range(4):
        clock.advance(0.5)
        step_events.ready(books.recorder.steps, clock.monotonic_s())
        clock.advance(0.5)
        books.step(samples=8, tokens=80)
    clock.advance(0.5)
    books.finish()
    scalars = books.board.take()
    described = set(TAGS) | {f"{tag}_{end}" for tag in INTERVALS for end in ("lo", "hi")}
    assert set(scalars) == described
    assert all(math.isfinite(value) for value in scalars.values())


def test_after_the_end_figures_reach_to_the_very_end(tmp_path: Path, clock: FakeClock) -> None:
    """The last figures include all steps and all energy."""
    books = Books(tmp_path, constant(clock, 200.0), clock=clock)
    books.enter("train")
    steady(books, 10)
    clock.advance(0.31)
    books.finish()
    scalars = books.board.take()
    assert scalars["efficiency/gpu_j_per_sample"] == pytest.approx(3.125, rel=1e-6)
    assert books.recorder.steps.tally.steps == 10


def test_a_card_that_is_not_seen_has_no_power(tmp_path: Path, clock: FakeClock) -> None:
    """If one of two cards has no reading yet, the power is that of the other one."""
    silent = ReplaySource(clock, [channel("power", "gauge", GPU1)], [])
    books = Books(tmp_path, constant(clock, 200.0), silent, clock=clock)
    clock.advance(20.0)
    assert books.board.take()["power/gpu_w"] == pytest.approx(200.0, rel=1e-6)


def test_a_gap_does_not_make_samples_cheaper(tmp_path: Path, clock: FakeClock) -> None:
    """With readings for half of the time, joules per sample are extrapolated or absent."""
    of = channel("power", "gauge", period_s=0.1)
    readings = [Reading(of, START_S + 0.1 * i, 200.0) for i in range(300) if i < 100 or i > 200]
    books = Books(tmp_path, ReplaySource(clock, [of], readings, interval_s=0.1), clock=clock)
    books.enter("train")
    steady(books, 25)
    clock.advance(0.5)
    scalars = books.board.take()
    assert scalars.get("efficiency/gpu_j_per_sample_hi", math.inf) >= 3.12


def test_a_gauge_that_fell_silent_is_absent(tmp_path: Path, clock: FakeClock) -> None:
    """A minute after the last reading of the temperature, its tag is absent."""
    books = Books(tmp_path, gauges(clock), constant(clock, 50.0, CPU), clock=clock)
    clock.advance(10.0)
    books.board.take()
    clock.advance(60.0)
    assert "gpu/temperature_c" not in books.board.take()
