"""One recorded window: its file, and the circumstances."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.profiling.kernels.tally import KernelTally, tally
from energy_callbacks.profiling.kernels.traces import xplane
from energy_callbacks.profiling.kernels.traces.kineto import Trace, parse
from energy_callbacks.profiling.kernels.traces.spans import spans
from energy_callbacks.profiling.kernels.traces.tracks import Track, events, tracks
from energy_callbacks.sensing.clock import looked_at

# A counter confirms what the samples said within four seconds (H200); the timeline forgets
# readings after ten minutes.
_SETTLED_S: Final = 8.0


@dataclass(slots=True, kw_only=True)
class Capture:
    """One window.

    Attributes:
        path: of what the framework's profiler wrote.
        rank: of the process.
        start_s: start of the window, by the meter's clock.
        end_s: its end.
        steps: that were recorded.
        offset_s: how far Unix time is ahead of the meter's clock.
        waits_s: for data, as the training loop reported them.
        tracks: of the sensors, once they have reported.
    """

    path: Path
    rank: int
    start_s: float
    end_s: float
    steps: int
    offset_s: float
    waits_s: list[tuple[float, float]]
    tracks: list[Track] | None = None

    def look(self, meter: ActiveAttempt, now_s: float, *, at_once: bool = False) -> None:
        """Keep what the sensors have reported, once they have, before it is forgotten."""
        if self.tracks is None and (at_once or now_s >= self.end_s + _SETTLED_S):
            devices = meter.devices
            self.tracks = tracks(meter.timeline, devices, self.start_s, self.end_s)


def captured(
    meter: ActiveAttempt,
    path: Path,
    start_s: float,
    steps: int,
    waits_s: list[tuple[float, float]],
) -> Capture:
    """A window that has ended now."""
    now_s, offset_s = looked_at(meter.clock)
    return Capture(
        path=path,
        rank=meter.rank,
        start_s=start_s,
        end_s=now_s,
        steps=steps,
        offset_s=offset_s,
        waits_s=waits_s,
    )


def told(capture: Capture) -> tuple[KernelTally | None, Path]:
    """The sums of a window, and the file of its trace.

    A trace of PyTorch gets the tracks of the sensors and is compressed; its first form is removed.
    """
    if capture.path.suffix != ".json":
        return xplane.kernels(capture.path, capture.steps), capture.path
    document = json.loads(capture.path.read_bytes())
    trace = parse(document)
    found = tally(trace, _waits(capture, trace))
    kept = capture.path.with_suffix(".json.gz")
    _write(document, capture, trace, kept)
    capture.path.unlink()
    return found, kept


def _waits(capture: Capture, trace: Trace) -> Any:
    return spans(
        (trace.us(start_s + capture.offset_s), trace.us(end_s + capture.offset_s))
        for start_s, end_s in capture.waits_s
    )


def _write(document: dict[str, Any], capture: Capture, trace: Trace, path: Path) -> None:
    more = events(capture.tracks or (), capture.offset_s, trace.base_s)
    document["traceEvents"].extend(more)
    # HolisticTraceAnalysis looks for the rank, with a space before the number.
    document.setdefault("distributedInfo", {"rank": capture.rank})
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=5) as file:
        # Not json.dump: into a stream Python's own encoder writes, which is four times as slow.
        file.write(json.dumps(document, separators=(",", ": ")))
