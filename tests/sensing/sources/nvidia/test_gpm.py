"""Activity of multiprocessors, tensor cores and memory of a card whose load is known."""

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pynvml
import pytest

from energy_callbacks.core.errors import ReadingMissed
from tests.fake_nvml import presets
from tests.fake_nvml.library import FakeNvml
from tests.fake_nvml.scenario import Card, Fault, Scenario
from tests.fake_nvml.signals import Constant, Sine, Square
from tests.garbage import freeze
from tests.sensing.sources.nvidia.test_source import GPM, Bench

POWER = Constant(300.0)
# In percent, as NVML has it.
BUSY = {
    "sm_active": Square(low_w=0.0, high_w=100.0, period_s=3.7, duty=0.3),
    "sm_occupancy": Constant(12.5),
    "tensor_active": Sine(mean_w=40.0, amplitude_w=30.0, period_s=2.3),
    "dram_active": Square(low_w=5.0, high_w=65.0, period_s=0.31),
}
EPOCH_S = 1.7e9


class Gpm:
    """A bench on one card; its samples are counted from the start of the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        freeze()  # frees samples of earlier tests; later collections do not visit their objects

    def bench(self, card: Card, *faults: Fault) -> Bench:
        nvml = FakeNvml(Scenario(cards=(card,), faults=faults, epoch_unix_s=EPOCH_S), self._folder)
        self._stack.callback(nvml.close)
        bench = Bench(nvml)
        self._stack.callback(bench.source.close)
        return bench


@pytest.fixture
def gpm(tmp_path: Path) -> Iterator[Gpm]:
    """``gpm.bench(card, fault, ...)``."""
    with ExitStack() as stack:
        yield Gpm(tmp_path, stack)


def h200() -> Card:
    """An H200 with all its load known."""
    return presets.h200(POWER, **{f"{name}_percent": signal for name, signal in BUSY.items()})


def refused(code: int, start_s: float = 0.0, end_s: float = 1e6) -> Fault:
    """Samples fail with an NVML code."""
    return Fault(group="gpm", kind="error", start_s=start_s, end_s=end_s, value=code)


@pytest.mark.parametrize("quantity", sorted(GPM))
def test_a_value_is_the_mean_since_the_reading_before(gpm: Gpm, quantity: str) -> None:
    """Each value is the exact mean of its signal from the moment of the one before to its own."""
    bench = gpm.bench(h200())
    assert bench.open()[quantity].kind == "mean"
    bench.run(60.0)

    found = bench.of(quantity)
    assert 36 <= len(found) <= 38
    for before, after in pairwise(found):
        elapsed_s = after.t_s - before.t_s
        truth = BUSY[quantity].energy_j(before.t_s, after.t_s) / elapsed_s / 100.0
        # Where inside its call a sample was taken is not known.
        assert after.value == pytest.approx(truth, abs=1.5 * after.t_error_s / elapsed_s + 1e-6)
        assert elapsed_s == pytest.approx(1.6, abs=0.01)


def test_all_metrics_come_from_one_sample(gpm: Gpm) -> None:
    """Four metrics cost one call of 0.2 ms in 1.6 s: their moments are the same."""
    bench = gpm.bench(h200())
    bench.open()
    bench.run(20.0)

    times = [bench.times_s(quantity) for quantity in GPM]
    assert times[1:] == times[:-1]
    assert max(reading.t_error_s for reading in bench.of("sm_active")) < 0.5e-3


def test_one_call_reads_all_metrics(gpm: Gpm) -> None:
    """When the sample is due one call returns four readings; then nothing is due for two beats."""
    bench = gpm.bench(h200())
    bench.open()
    (reader,) = [r for r in bench.source._readers if {c.quantity for c in r.channels} == GPM]
    bench.clock.sleep(reader.due_s - bench.clock.monotonic_s() + 1e-4)
    now_s = bench.clock.monotonic_s()
    assert reader.due_s <= now_s
    assert [reading.channel for reading in reader.read()] == list(reader.channels)
    assert reader.read() == []
    assert reader.due_s == pytest.approx(now_s + 1.6, abs=0.01)


@pytest.mark.parametrize("preset", [presets.a100, presets.v100, presets.pascal])
def test_older_cards_have_none(gpm: Gpm, preset) -> None:
    """Before Hopper there is no activity, no note about it, and no sample is kept."""
    bench = gpm.bench(preset(POWER))
    channels = bench.open()
    assert not GPM & set(channels)
    assert channels["power"].device.notes == ()
    assert bench.nvml.gpm_samples() == 0


def test_without_permission_a_note_says_so(gpm: Gpm) -> None:
    """An ordinary user on a locked system: the rest is measured, and one note names the reason."""
    bench = gpm.bench(h200(), refused(pynvml.NVML_ERROR_NO_PERMISSION))
    channels = bench.open()
    assert not GPM & set(channels)
    assert {"power", "energy", "utilisation"} <= set(channels)
    notes = channels["power"].device.notes
    assert len([note for note in notes if "this user has no permission" in note]) == 1
    gc.collect()
    assert bench.nvml.gpm_samples() == 0


def test_permitted_cards_have_no_note(gpm: Gpm) -> None:
    """Where the counters can be read nothing is said about permission."""
    assert gpm.bench(h200()).open()["power"].device.notes == ()


def test_a_failing_second_is_part_of_the_next_mean(gpm: Gpm) -> None:
    """Five seconds without an answer: the next value is the mean of all of them."""
    bench = gpm.bench(h200(), refused(pynvml.NVML_ERROR_UNKNOWN, 110.0, 115.0))
    bench.open()
    bench.run(30.0)

    found = bench.of("tensor_active")
    gaps = [(a, b) for a, b in pairwise(found) if b.t_s - a.t_s > 2.0]
    assert len(gaps) == 1
    before, after = gaps[0]
    truth = BUSY["tensor_active"].energy_j(before.t_s, after.t_s) / (after.t_s - before.t_s)
    assert after.value == pytest.approx(truth / 100.0, abs=1e-3)


def test_samples_are_freed(gpm: Gpm) -> None:
    """A thousand readings and five openings use two samples at a time, and none at the end."""
    bench = gpm.bench(h200())
    for _ in range(5):
        bench.open()
        assert bench.nvml.gpm_samples() == 2
        bench.run(200.0)
        assert bench.nvml.gpm_samples() == 2
    bench.source.close()
    assert bench.nvml.gpm_samples() == 0


def test_a_lost_card_frees_them_too(gpm: Gpm) -> None:
    """A card that falls off the bus leaves no sample behind when its source is closed."""
    lost = Fault(group="*", kind="error", start_s=105.0, value=float(pynvml.NVML_ERROR_GPU_IS_LOST))
    bench = gpm.bench(h200(), lost)
    bench.open()
    with pytest.raises(Exception, match="is gone"):
        bench.run(10.0)
    bench.source.close()
    assert bench.nvml.gpm_samples() == 0


def test_one_failing_metric_leaves_the_others_of_the_card(gpm: Gpm) -> None:
    """A driver that stops answering about activity takes no other quantity with it."""
    bench = gpm.bench(h200(), refused(pynvml.NVML_ERROR_UNKNOWN, 105.0))
    bench.open()
    try:
        bench.run(15.0, patient=True)
    except ReadingMissed:
        pytest.fail("the other quantities were there")
    alive = {reading.channel.quantity for reading in bench.readings if reading.t_s > 110.0}
    assert alive.isdisjoint(GPM)
    assert {"power", "energy", "clock"} <= alive
