"""Figures beside the loss, from scripted sensors on virtual time."""

import math
from pathlib import Path

import pytest

from energy_callbacks.accounting.metrics.scalars import INTERVALS, TAGS
from energy_callbacks.core.records import Device, Reading
from energy_callbacks.testing import FakeClock, ReplaySource, ScriptedSource
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
    """A step each second."""
    for _ in range(seconds):
        books.clock.advance(1.0)
        books.step(samples=samples, tokens=tokens)


def test_a_row_that_was_not_kept_ready_is_the_same(tmp_path: Path, clock: FakeClock) -> None:
    """Half a minute in which nobody asks: nothing is worked out, and the first row is whole."""
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
    """Ten seconds after somebody has asked rows are no longer kept ready."""
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
    """The training thread gets the row before while the journal's thread is at the next."""
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
    """200 W and 64 samples a second are 3.125 J a sample, inside its own interval."""
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


def test_the_interval_of_an_efficiency_is_that_of_its_energy(
    tmp_path: Path, clock: FakeClock
) -> None:
    """A sensor that is right to 10 % gives 3.125 J a sample, 10 % and a little up and down."""
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
    """100 W, then 300 W: the second figures know nothing of the first ones."""
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
    """Asked twice, the board says the same; before anything was seen, nothing."""
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
    """In a long validation power goes on and the last figures per sample are still there."""
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
    """Ten seconds of validation between two steps change energy so far, not joules a sample."""
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
    """On a laptop the tags of a GPU are absent, never zero; the totals are there."""
    books = Books(tmp_path, constant(clock, 28.0, CPU), clock=clock)
    books.enter("train")
    steady(books, 5)
    clock.advance(0.5)
    scalars = books.board.take()
    assert not [tag for tag in scalars if "gpu" in tag or "device" in tag or "allocated" in tag]
    assert scalars["efficiency/total_j_per_sample"] == pytest.approx(28.0 / 64.0, rel=1e-6)


def test_what_nobody_counts_is_absent(tmp_path: Path, clock: FakeClock) -> None:
    """Without samples and tokens there are figures per step, and none per sample or token."""
    books = Books(tmp_path, constant(clock, 200.0), clock=clock)
    books.enter("train")
    steady(books, 5, samples=None, tokens=None)
    clock.advance(0.5)
    scalars = books.board.take()
    assert scalars["efficiency/gpu_j_per_step"] == pytest.approx(200.0, rel=1e-6)
    assert not [tag for tag in scalars if "sample" in tag or "token" in tag or "wait" in tag]


def test_waiting_is_a_share_of_training(tmp_path: Path, clock: FakeClock) -> None:
    """A quarter of each second spent waiting for data is a quarter."""
    books = Books(tmp_path, constant(clock, 200.0), clock=clock)
    books.enter("train")
    for _ in range(40):
        clock.advance(0.25)
        books.recorder.steps.mark_ready(clock.monotonic_s())
        clock.advance(0.75)
        books.step()
    clock.advance(0.5)
    assert books.board.take()["throughput/data_wait_fraction"] == pytest.approx(0.25, abs=0.01)


def test_estimated_energy_is_not_called_measured(tmp_path: Path, clock: FakeClock) -> None:
    """150 W from a sensor and 50 W from a model: three quarters are measured."""
    model = Device(key="cpu", kind="cpu", scope="host", name="model", origin="estimated")
    books = Books(tmp_path, constant(clock, 150.0), constant(clock, 50.0, model), clock=clock)
    clock.advance(5.0)
    assert books.board.take()["energy/measured_fraction"] == pytest.approx(0.75, rel=1e-6)


def test_emissions_follow_the_energy(tmp_path: Path, clock: FakeClock) -> None:
    """An unknown place has an interval and no value; a known one has all three, in grams."""
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


def gauges(clock: FakeClock) -> ReplaySource:
    """Two cards and a process with everything that can be measured of them."""
    gpus = (channel("power", "mean").device, GPU1)
    process = Device(key="process", kind="process", scope=None, name="process")
    values = {
        ("memory_used", 0): 2 * 2**30, ("memory_used", 1): 3 * 2**30,
        ("utilisation", 0): 0.5, ("utilisation", 1): 0.9,
        ("sm_active", 0): 0.4, ("sm_active", 1): 0.6, ("sm_occupancy", 0): 0.125,
        ("tensor_active", 0): 0.3, ("dram_active", 1): 0.7,
        ("temperature", 0): 51.0, ("temperature", 1): 63.0,
        ("clock", 0): 1.98e9, ("clock", 1): 1.0e9,
        ("peak_allocated", 0): 2**30,
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
    """Memory adds, clocks and utilisation are means, the hottest card speaks for temperature."""
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
        "gpu/sm_clock_mhz": 1490.0,
    }
    assert {tag: scalars[tag] for tag in expected} == pytest.approx(expected)
    assert scalars["gpu/throttled_fraction"] == pytest.approx(0.25, abs=0.02)


def test_every_tag_that_is_made_is_described(tmp_path: Path, clock: FakeClock) -> None:
    """Tags are those of ``TAGS``, with ``_lo`` and ``_hi`` for efficiencies and emissions alone."""
    books = Books(tmp_path, gauges(clock), constant(clock, 50.0, CPU), clock=clock)
    books.board.emissions_kg = lambda _: (2e-3, 1e-3, 3e-3)
    books.enter("train")
    for _ in range(4):
        clock.advance(0.5)
        books.recorder.steps.mark_ready(clock.monotonic_s())
        clock.advance(0.5)
        books.step(samples=8, tokens=80)
    clock.advance(0.5)
    books.finish()
    scalars = books.board.take()
    described = set(TAGS) | {f"{tag}_{end}" for tag in INTERVALS for end in ("lo", "hi")}
    assert set(scalars) == described
    assert all(math.isfinite(value) for value in scalars.values())


def test_after_the_end_figures_reach_to_the_very_end(tmp_path: Path, clock: FakeClock) -> None:
    """The last figures hold all steps and all energy, whatever was settled before."""
    books = Books(tmp_path, constant(clock, 200.0), clock=clock)
    books.enter("train")
    steady(books, 10)
    clock.advance(0.31)
    books.finish()
    scalars = books.board.take()
    assert scalars["efficiency/gpu_j_per_sample"] == pytest.approx(3.125, rel=1e-6)
    assert books.recorder.steps.tally.steps == 10


def test_a_card_that_is_not_seen_has_no_power(tmp_path: Path, clock: FakeClock) -> None:
    """Of two cards one has not answered yet: the power is that of the other, not twice as much."""
    silent = ReplaySource(clock, [channel("power", "gauge", GPU1)], [])
    books = Books(tmp_path, constant(clock, 200.0), silent, clock=clock)
    clock.advance(20.0)
    assert books.board.take()["power/gpu_w"] == pytest.approx(200.0, rel=1e-6)


def test_a_gap_does_not_make_samples_cheaper(tmp_path: Path, clock: FakeClock) -> None:
    """Seen for half of the time: joules a sample are those of the seen half, absent, or open."""
    of = channel("power", "gauge", period_s=0.1)
    readings = [Reading(of, START_S + 0.1 * i, 200.0) for i in range(300) if i < 100 or i > 200]
    books = Books(tmp_path, ReplaySource(clock, [of], readings, interval_s=0.1), clock=clock)
    books.enter("train")
    steady(books, 25)
    clock.advance(0.5)
    scalars = books.board.take()
    assert scalars.get("efficiency/gpu_j_per_sample_hi", math.inf) >= 3.12


def test_a_gauge_that_fell_silent_is_absent(tmp_path: Path, clock: FakeClock) -> None:
    """A minute after a card's last temperature there is none to log."""
    books = Books(tmp_path, gauges(clock), constant(clock, 50.0, CPU), clock=clock)
    clock.advance(10.0)
    books.board.take()
    clock.advance(60.0)
    assert "gpu/temperature_c" not in books.board.take()
