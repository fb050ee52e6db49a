"""The recorded windows of an attempt, each with its trace and its sensor readings."""

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.core import atomic_files
from energy_callbacks.profiling.common.spans import spans
from energy_callbacks.profiling.frameworks.kineto import Trace
from energy_callbacks.profiling.kernels import xplane
from energy_callbacks.profiling.kernels.schedule import Schedule
from energy_callbacks.profiling.kernels.tally import KernelTally, tally
from energy_callbacks.profiling.kernels.tracks import Track, events, tracks

# A window's readings are assumed to be complete this many seconds after the window's end: twice the
# maximum lag of the energy counter on an H200 (4 s). The timeline keeps readings for ten minutes.
_SETTLED_S: Final = 8.0


@dataclass(slots=True, kw_only=True)
class Capture:
    """One recorded window.

    Attributes:
        path: trace file of the framework's profiler.
        start_s: start of the window, in seconds of the meter's clock.
        end_s: end of the window, by the same clock.
        steps: number of recorded steps.
        offset_s: Unix time minus the time of the meter's clock, in seconds.
        waits_s: start and end of each wait for data that the training loop reported, in seconds of
            the meter's clock.
        tracks: sensor readings; ``None`` before ``keep_readings`` has copied them.
    """

    path: Path
    start_s: float
    end_s: float
    steps: int
    offset_s: float
    waits_s: list[tuple[float, float]]
    tracks: list[Track] | None = None

    def keep_readings(self, meter: ActiveAttempt, now_s: float, *, at_once: bool = False) -> None:
        """Copy the window's readings from the timeline to ``tracks`` if they are complete.

        Args:
            meter: the attempt.
            now_s: current time of the meter's clock.
            at_once: whether to copy the readings even if they may be incomplete.
        """
        if self.tracks is None and (at_once or now_s >= self.end_s + _SETTLED_S):
            self.tracks = tracks(meter.timeline, meter.devices, self.start_s, self.end_s)

    def evaluate(self, rank: int) -> tuple[KernelTally | None, Path]:
        """Return the sums over the kernels (``None`` if unknown), and the path of the trace file.

        Sensor readings are added to a trace of PyTorch. Such a trace is then compressed, and the
        uncompressed file is removed.

        Args:
            rank: rank of this process, which is written into a trace of PyTorch.
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
        # HolisticTraceAnalysis finds the rank only if there is a space before the number.
        document.setdefault("distributedInfo", {"rank": rank})
        compressed = self.path.with_suffix(".json.gz")
        # json.dump uses the encoder written in Python, which takes four times as long.
        text = json.dumps(document, separators=(",", ": "))
        atomic_files.write(compressed, gzip.compress(text.encode(), compresslevel=5))
        self.path.unlink()
        return sums, compressed


@dataclass(slots=True, kw_only=True)
class KernelRun:
    """The state of ``KernelProfiler`` in one attempt.

    Attributes:
        meter: the attempt.
        folder: folder of the profiler's files.
        schedule: schedule of the windows, which also counts steps and the cost of windows.
        flops_per_step: FLOPs of a step over all devices of this process; ``None`` if the user did
            not give them.
        framework: framework whose profiler is used; ``None`` before the first window is due.
        captures: recorded windows.
        notes: problems for the report, as sentences.
    """

    meter: ActiveAttempt
    folder: Path
    schedule: Schedule
    flops_per_step: float | None
    framework: str | None = None
    captures: list[Capture] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
