"""Every reading is on disk if requested, and a run can be replayed from the file."""

from pathlib import Path

import numpy as np
import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.records import Device, Sensor
from energy_callbacks.report import build
from energy_callbacks.sensing import recording
from energy_callbacks.testing import FakeClock, ReplaySource, ScriptedSource

CARDS = tuple(
    Device(key=f"gpu{n}", kind="gpu", scope="gpu", name="card", notes=("shared",)) for n in (0, 1)
)


def wave_w(t_s: float) -> float:
    """A load that varies faster than slow sampling can resolve."""
    return float(300.0 + 100.0 * np.sin(40.0 * t_s))


def source(clock: FakeClock, device: Device) -> ScriptedSource:
    """A card that is read ten times per second."""
    sensor = Sensor(name="scripted", period_s=0.1, citation="none")
    return ScriptedSource(clock, power_w=wave_w, device=device, sensor=sensor, interval_s=0.1)


def trained(folder: Path, clock: FakeClock, *sources: object, raw: bool) -> EnergyMeter:
    """Twenty seconds in two phases."""
    config = EnergyConfig(report_dir=folder, raw_readings=raw)
    meter = EnergyMeter(config=config, sources=sources, clock=clock).start()  # type: ignore[arg-type]
    with meter.phase("train"):
        clock.advance(15.0)
    clock.advance(5.0)
    meter.stop()
    return meter


def recorded(folder: Path) -> Path:
    """The recording of the only process."""
    [path] = folder.glob("attempts/1/*.readings")
    return path


def test_nothing_is_kept_unless_asked_for(tmp_path: Path) -> None:
    """By default the run folder contains only the journal."""
    clock = FakeClock()
    trained(tmp_path, clock, source(clock, CARDS[0]), raw=False)
    assert not list(tmp_path.glob("**/*.readings"))


def test_every_reading_is_kept_with_its_channel(tmp_path: Path) -> None:
    """All values of two cards are there, with device and sensor."""
    clock = FakeClock()
    trained(tmp_path, clock, *(source(clock, card) for card in CARDS), raw=True)
    channels, readings = recording.read(recorded(tmp_path))
    assert [channel.device for channel in channels] == list(CARDS)
    assert channels[0].sensor == Sensor(name="scripted", period_s=0.1, citation="none")
    for channel in channels:
        mine = [reading for reading in readings if reading.channel == channel]
        assert len(mine) >= 200
        for reading in mine:
            assert reading.value == pytest.approx(wave_w(1000.0 + reading.t_s), abs=0.01)


def test_a_replayed_run_has_the_same_energy(tmp_path: Path) -> None:
    """Replayed into another meter, the file results in the same joules."""
    clock = FakeClock()
    trained(tmp_path / "first", clock, *(source(clock, card) for card in CARDS), raw=True)
    again = FakeClock(start_s=77.0)
    replay = ReplaySource.of_file(again, recorded(tmp_path / "first"))
    trained(tmp_path / "second", again, replay, raw=False)
    first, second = build(tmp_path / "first"), build(tmp_path / "second")
    assert first.energy.gpu.energy_j is not None
    assert second.energy.gpu.energy_j == pytest.approx(first.energy.gpu.energy_j, rel=1e-6)


def test_what_was_read_a_second_ago_is_in_the_file_of_a_killed_run(tmp_path: Path) -> None:
    """If the last line is cut off, the readings before it are there."""
    clock = FakeClock()
    config = EnergyConfig(report_dir=tmp_path, raw_readings=True)
    meter = EnergyMeter(config=config, sources=[source(clock, CARDS[0])], clock=clock).start()
    clock.advance(10.0)
    path = recorded(tmp_path)
    with path.open("a") as file:
        file.write('{"type":"readings","channel":0,"t_s":[1.0')
    _, readings = recording.read(path)
    assert max(reading.t_s for reading in readings) >= 9.0
    meter.stop()


def test_another_file_is_refused(tmp_path: Path) -> None:
    """A journal is not a recording, and the message says which file is."""
    clock = FakeClock()
    trained(tmp_path, clock, source(clock, CARDS[0]), raw=True)
    [journal] = tmp_path.glob("attempts/1/*.jsonl")
    with pytest.raises(JournalError, match=r"\*\.readings"):
        recording.read(journal)


class Finishing(ScriptedSource):
    """Keeps its last readings until ``finish``, as a card with buffered samples does."""

    def read(self):
        held, self._held = getattr(self, "_held", []), list(super().read())
        return held

    def finish(self):
        return [*self.read(), *self.read()]


@pytest.mark.parametrize("raw_readings", [False, True])
def test_the_last_readings_are_fetched_with_and_without_a_file(
    tmp_path: Path, raw_readings: bool
) -> None:
    """Readings that a source has kept are counted at the end, with and without a recording."""
    clock = FakeClock()
    one = Finishing(clock, power_w=lambda _: 100.0, device=CARDS[0], interval_s=1.0)
    config = EnergyConfig(report_dir=tmp_path, raw_readings=raw_readings)
    meter = EnergyMeter(config=config, sources=[one], clock=clock).start()
    clock.advance(10.5)
    meter.stop()

    assert build(tmp_path).energy.gpu.coverage == 1.0
