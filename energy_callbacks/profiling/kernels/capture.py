"""Recorded windows of an attempt: their traces, and the sensor readings of the same time."""

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.profiling.common.spans import spans
from energy_callbacks.profiling.frameworks.kineto import Trace
from energy_callbacks.profiling.kernels import xplane
from energy_callbacks.profiling.kernels.schedule import Schedule
from energy_callbacks.profiling.kernels.tally import KernelTally, tally
from energy_callbacks.profiling.kernels.tracks import Track, events, tracks

# An energy counter confirms the samples within four seconds (H200); the timeline keeps readings
# for ten minutes.
_SETTLED_S: Final = 8.0


@dataclass(slots=True, kw_only=True)
class Capture:
    """One recorded window.

    Attributes:
        path: trace of the framework's profiler.
        start_s: start of the window, by the meter's clock.
        end_s: end of the window.
        steps: number of recorded steps.
        offset_s: difference of Unix time and the meter's clock.
        waits_s: waits for data as the training loop reported them, by the meter's clock.
        tracks: readings of the sensors; ``None`` until they are complete.
    """

    path: Path
    start_s: float
    end_s: float
    steps: int
    offset_s: float
    waits_s: list[tuple[float, float]]
    tracks: list[Track] | None = None

    def keep_readings(self, meter: ActiveAttempt, now_s: float, *, at_once: bool = False) -> None:
        """Keeps the readings of the sensors once they are complete, or at once."""
        if self.tracks is None and (at_once or now_s >= self.end_s + _SETTLED_S):
            self.tracks = tracks(meter.timeline, meter.devices, self.start_s, self.end_s)

    def evaluate(self, rank: int) -> tuple[KernelTally | None, Path]:
        """Returns the sums of the window of a rank, and the file of its trace.

        The readings of the sensors are added to a trace of PyTorch, which is compressed; the
        uncompressed file is removed.
        """
        if self.path.suffix != ".json":
            return xplane.kernels(self.path, self.steps), self.path
        document = json.loads(self.path.read_bytes())
        trace = Trace(document)
        waits = spans(
            (trace.us(start_s + self.offset_s), trace.us(end_s + self.offset_s))
            for start_s, end_s in self.waits_s
        )
        sums = tally(trace, waits)
        document["traceEvents"].extend(events(self.tracks or (), self.offset_s, trace.base_s))
        # HolisticTraceAnalysis looks for the rank, with a space before the number.
        document.setdefault("distributedInfo", {"rank": rank})
        compressed = self.path.with_suffix(".json.gz")
        with gzip.open(compressed, "wt", encoding="utf-8", compresslevel=5) as file:
            # json.dump to a stream uses the encoder in Python, which is four times as slow.
            file.write(json.dumps(document, separators=(",", ": ")))
        self.path.unlink()
        return sums, compressed


@dataclass(slots=True, kw_only=True)
class KernelRun:
    """One attempt with its recorded windows.

    Attributes:
        folder: folder of the files.
        schedule: steps of the attempt, and the cost of windows.
        flops_per_step: FLOPs of a step if the user gave them.
        framework: framework whose profiler recorded; ``None`` if no window was opened.
        captures: recorded windows.
        notes: problems during the attempt.
    """

    meter: ActiveAttempt
    folder: Path
    schedule: Schedule
    flops_per_step: float | None
    framework: str | None = None
    captures: list[Capture] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
