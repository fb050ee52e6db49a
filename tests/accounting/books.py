"""A recorder with its timeline, sensors and journal, on virtual time."""

import math
from pathlib import Path
from typing import Any

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.journal import JournalWriter
from energy_callbacks.accounting.journal.previous_attempts import PreviousAttempts
from energy_callbacks.accounting.metrics.scalars import ScalarBoard
from energy_callbacks.accounting.recorder import JournalRecorder
from energy_callbacks.core.records import Device
from energy_callbacks.sensing.sampler import Sampler
from energy_callbacks.sensing.sources.protocol import Source
from energy_callbacks.sensing.timeline import Timeline
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.accounting import step_events

START_S = 1000.0
HEADER = {"type": "header", "format": journal.FORMAT, "version": journal.VERSION}
CPU = Device(key="cpu0", kind="cpu", scope="host", name="scripted CPU")


class Books:
    """The parts of an attempt; each ``clock.advance`` is a part of a training."""

    def __init__(self, folder: Path, *sources: Source, clock: FakeClock) -> None:
        self.clock = clock
        self.path = folder / "journal.jsonl"
        self.timeline = Timeline()
        self.recorder = JournalRecorder(self.timeline, self._writer(), clock, clock.monotonic_s())
        self.board = ScalarBoard(
            self.recorder,
            earlier=PreviousAttempts(),
            samples_scale=1.0,
            emissions_kg=lambda _: (None, None, None),
        )
        self.sampler = Sampler(sources, self.timeline, clock, self.recorder.note)
        self.sampler.start()
        self.sizes: list[tuple[int, float]] = []
        self.periodic = clock.every(0.5, self._update, name="journal")

    def _writer(self) -> JournalWriter:
        writer = JournalWriter(self.path)
        writer.write(HEADER)
        return writer

    def _update(self) -> None:
        self.recorder.update()
        self.board.update()
        self.sizes.append((self.path.stat().st_size, self.clock.monotonic_s()))

    def until(self, size: int) -> list[dict[str, Any]]:
        """Records of the journal when it had this size."""
        part = self.path.with_name("part.jsonl")
        part.write_bytes(self.path.read_bytes()[:size])
        return list(journal.read(part))

    @property
    def lines(self) -> list[dict[str, Any]]:
        return list(journal.read(self.path))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("kind", line["type"]) == kind]

    def rows(self, key: str) -> list[dict[str, float | None]]:
        """The series rows of a device, with the names of the values."""
        found = (line["rows"][key] for line in self.of("series"))
        return [dict(zip(journal.COLUMNS, row, strict=False)) for row in found]

    def enter(self, name: str) -> None:
        self.recorder.enter(name, self.clock.monotonic_s())

    def leave(self, name: str) -> None:
        self.recorder.leave(name, self.clock.monotonic_s())

    def step(self, samples: float | None = 8, tokens: float | None = None) -> None:
        step_events.step(self.recorder.steps, self.clock.monotonic_s(), samples, tokens)

    def finish(self) -> None:
        self.sampler.stop(1.0)
        self.periodic.ask_to_stop()
        self.periodic.wait(1.0)
        self.timeline.finish()
        self.recorder.finish("finished", None, sampler_cpu_s=0.0, missed_readings={})
        self.board.update()


def wave_w(t_s: float) -> float:
    """Power that varies by a third, W."""
    return 300.0 + 100.0 * math.sin(t_s)


def wave_j(t_s: float) -> float:
    """Integral of ``wave_w``, J."""
    return 300.0 * t_s - 100.0 * math.cos(t_s)


def wave(clock: FakeClock, device: Device | None = None, interval_s: float = 0.1) -> ScriptedSource:
    """A sensor of that power, which reports means since the previous reading."""
    return ScriptedSource(
        clock, power_w=wave_w, energy_j=wave_j, kind="mean", device=device, interval_s=interval_s
    )


def train(books: Books, epochs: int = 3, steps: int = 40, step_s: float = 0.37) -> None:
    """A training with validation after each epoch and a checkpoint inside it."""
    books.enter("setup")
    books.clock.advance(1.3)
    books.leave("setup")
    books.enter("train")
    for _ in range(epochs):
        for _ in range(steps):
            books.clock.advance(step_s)
            books.step(samples=8, tokens=512)
        books.enter("validation")
        books.clock.advance(2.9)
        books.enter("checkpoint")
        books.clock.advance(0.7)
        books.leave("checkpoint")
        books.leave("validation")
    books.leave("train")


def energy_j(line: dict[str, Any], key: str = "gpu0") -> float:
    """Joules of one device in a journal line."""
    return float(line["energy"][key]["energy_j"])
