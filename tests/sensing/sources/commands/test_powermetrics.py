"""The energy of Apple silicon, from documents of ``powermetrics``."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil
import pytest

from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from energy_callbacks.core.records import Reading
from energy_callbacks.sensing.sources.commands import powermetrics
from energy_callbacks.sensing.sources.commands.powermetrics import PowermetricsSource
from energy_callbacks.testing import FakeClock
from tests.sensing.sources.commands.recordings import DATA, STREAM, python, refused


class Recording:
    """A source whose command replays the recording, a document at a time."""

    def __init__(self, folder: Path) -> None:
        os.mkfifo(folder / "orders")
        self.clock = FakeClock()
        command = python(STREAM, DATA / "powermetrics.plist", folder / "orders")
        self.source = PowermetricsSource(self.clock, command)
        self._orders: IO[str] | None = None
        self._path = folder / "orders"

    def order(self, *lines: str) -> None:
        """Let the command write a document for each line."""
        if self._orders is None:
            self._orders = self._path.open("w")
        print(*lines, sep="\n", file=self._orders, flush=True)

    def awaited(self) -> list[Reading]:
        """The readings of the next documents, once the command has written one."""
        while True:
            with suppress(ReadingMissed):
                if readings := list(self.source.read()):
                    return readings

    def close(self) -> None:
        """End the command."""
        self.source.close()
        if self._orders is not None:
            self._orders.close()
        self._orders = None


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    """The recording, which leaves no process."""
    before = psutil.Process().children()  # such as the servers of other tests of the lane
    found = Recording(tmp_path)
    yield found
    found.close()
    assert set(psutil.Process().children()) <= set(before)


def test_it_offers_the_three_parts_and_the_use_of_the_gpu(recording: Recording) -> None:
    """Each part has its scope; their sum is not a sensor of the machine."""
    offered = {(one.device.key, one.device.scope, one.quantity) for one in recording.source.open()}
    assert offered == {
        ("cpu0", "host", "energy"),
        ("gpu0", "gpu", "energy"),
        ("npu0", "host", "energy"),
        ("gpu0", "gpu", "utilisation"),
    }


def test_energies_are_the_sums_of_all_samples_since_open(recording: Recording) -> None:
    """Of 1.5, 1.5 and 1 J of CPU in 0.5, 0.51 and 0.49 s; the first document is not counted."""
    recording.source.open()
    recording.clock.advance(0.5)
    recording.order("next")
    readings = recording.awaited()
    recording.clock.advance(1.0)
    recording.order("next", "next")
    while len(readings) < 12:
        readings += recording.awaited()
    values = [(one.t_s - 1000.0, one.value) for one in readings if one.channel.device.key == "cpu0"]
    assert values == [pytest.approx(pair) for pair in ((0.5, 1.5), (1.01, 3.0), (1.5, 4.0))]
    newest = {one.channel.device.key: one.value for one in readings[-4:-1]}
    assert newest == pytest.approx({"cpu0": 4.0, "gpu0": 15.0, "npu0": 0.1})
    assert readings[-1].value == pytest.approx(0.8)


def test_a_late_document_is_a_missed_reading(recording: Recording) -> None:
    """It is late after two of its periods, and never an energy of 0."""
    recording.source.open()
    recording.clock.advance(0.8)
    assert recording.source.read() == []
    recording.clock.advance(0.2)
    with pytest.raises(ReadingMissed, match="no new sample"):
        recording.source.read()


def test_a_command_that_ends_is_lost_and_leaves_no_process(recording: Recording) -> None:
    """Its message is kept; the sampler opens the source again."""
    recording.source.open()
    recording.order("stop")
    with pytest.raises(SourceLost, match="powermetrics was stopped"):
        recording.awaited()


def test_a_user_without_permission_is_told_the_line_for_sudo() -> None:
    """The command is run by sudo, which does not ask for a password."""
    assert powermetrics.POWERMETRICS[:3] == ("sudo", "-n", "powermetrics")
    with pytest.raises(SourceUnavailable, match="a password is required") as caught:
        PowermetricsSource(FakeClock(), refused("sudo: a password is required")).open()
    assert "NOPASSWD: /usr/bin/powermetrics" in caught.value.fix
