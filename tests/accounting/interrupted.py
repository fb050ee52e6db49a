"""Interrupts a meter by a signal at many of its lines: ``python -m tests.accounting.interrupted``.

The arguments are a stage of ``STAGES`` and the number of lines to try. A first run finds the lines
of our package that the training thread executes in this stage. Then, for each of these lines, a
meter with real threads is interrupted just before this line. The handler does what handlers of
users and of Slurm do: it stops the meter, or saves a checkpoint. The script prints the number of
lines.
"""

import contextlib
import itertools
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import energy_callbacks
from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting import open_attempts
from energy_callbacks.accounting.journal import journal
from energy_callbacks.core.records import Channel, Device, Reading
from energy_callbacks.report_process import queue
from energy_callbacks.sensing.clock import SystemClock

OURS = str(Path(energy_callbacks.__file__).parent)
Line = tuple[str, int]


class Steady:
    """A source of 100 W that answers at once."""

    name = "steady"
    interval_s = 0.1

    def __init__(self) -> None:
        device = Device(key="gpu0", kind="gpu", scope="gpu", name="a GPU")
        self._channel = Channel(device=device, quantity="power", kind="gauge")

    def open(self) -> Sequence[Channel]:
        return [self._channel]

    def read(self) -> Sequence[Reading]:
        return [Reading(self._channel, SystemClock().monotonic_s(), 100.0)]

    def close(self) -> None:
        """Nothing to do."""


class Hanging(Steady):
    """A source whose last reading sets ``is_reached``, and hangs until ``let_go`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reached, self.let_go = threading.Event(), threading.Event()

    def finish(self) -> Sequence[Reading]:
        """See ``FinishingSource``."""
        self.is_reached.set()
        self.let_go.wait(60.0)
        return self.read()


def start(meter: EnergyMeter) -> None:
    """Start, and take a step."""
    meter.start()
    meter.enter("train")
    meter.step(samples=4)


def change_phases(meter: EnergyMeter) -> None:
    """Enter and leave a phase, and name a window."""
    meter.enter("validation")
    meter.leave("validation")
    meter.window("checkpoint", meter.now_s() - 0.001, meter.now_s())


def step(meter: EnergyMeter) -> None:
    """Take a step, and log a row."""
    meter.data_ready()
    meter.step(samples=4)
    meter.count(samples=1)
    meter.log(1)


def end(meter: EnergyMeter) -> None:
    """End as adapters do."""
    with meter.ending():
        meter.log(2)
        meter.totals()


def nothing(meter: EnergyMeter) -> None:
    """Do nothing before a stage."""


# What happens before a stage, and the stage.
STAGES: dict[str, tuple[Callable[[EnergyMeter], object], Callable[[EnergyMeter], object]]] = {
    "start": (nothing, start),
    "phases": (start, change_phases),
    "step": (start, step),
    "stop": (start, EnergyMeter.stop),
    "ending": (start, end),
    "save_report": (start, EnergyMeter.save_report),
    "exit": (start, lambda meter: open_attempts.close_all()),
}


def stop(meter: EnergyMeter) -> None:
    """Stop the meter, as a handler of SIGTERM does."""
    meter.stop()


def save(meter: EnergyMeter) -> None:
    """Save a checkpoint, as the handler of Lightning for Slurm does."""
    meter.enter("checkpoint")
    meter.state()
    meter.leave("checkpoint")
    meter.window("checkpoint", meter.now_s() - 0.001, meter.now_s())


@contextlib.contextmanager
def traced(on_line: Callable[[Line], object]) -> Iterator[None]:
    """Call a function before each line of our package on this thread."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(OURS):
            return None
        if event == "line":
            on_line((file, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)


def run(stage: str, on_line: Callable[[Line], object], meters: list[EnergyMeter]) -> None:
    """Run a stage with a new meter, then exit; the journals must be complete."""
    before, action = STAGES[stage]
    with tempfile.TemporaryDirectory() as folder:
        meter = EnergyMeter(config=EnergyConfig(report_dir=folder), sources=[Steady()])
        meters[:] = [meter]
        before(meter)
        with traced(on_line):
            action(meter)
        open_attempts.close_all()
        [path] = journal.find(Path(folder))
        assert journal.has_ended(path), "the last line is missing"
        assert path.read_bytes().count(b'"type":"totals"') == 1


def main(stage: str, most: int) -> None:
    """Interrupt at most ``most`` lines of a stage, evenly spread over it."""
    lines: dict[Line, None] = {}
    meters: list[EnergyMeter] = []
    run(stage, lines.setdefault, meters)
    every = -(-len(lines) // most)
    chosen = list(itertools.islice(lines, 0, None, every))
    for line, handle in itertools.product(chosen, (stop, save)):
        waiting = {line}

        def on_line(now: Line, waiting: set[Line] = waiting) -> None:
            if now in waiting:
                waiting.clear()
                signal.raise_signal(signal.SIGTERM)

        def handler(number: int, frame: object, handle: Any = handle) -> None:
            handle(meters[0])

        signal.signal(signal.SIGTERM, handler)
        print(stage, line, handle.__name__, file=sys.stderr, flush=True)
        run(stage, on_line, meters)
    print(len(chosen))


if __name__ == "__main__":
    # Reports are made elsewhere; here they would take most of the time.
    queue.reports.make = lambda job: job.done.set()  # type: ignore[method-assign]
    main(sys.argv[1], int(sys.argv[2]))
