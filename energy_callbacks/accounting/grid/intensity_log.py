"""Writes the carbon intensities of an attempt to its journal, and computes emissions during it."""

import math
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import NamedTuple

from energy_callbacks.accounting.grid.grid import Grid, mean
from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.accounting.metrics.carbon import EmissionsEstimate, Intensity
from energy_callbacks.accounting.metrics.energy_sums import total
from energy_callbacks.accounting.recorder import JournalRecorder
from energy_callbacks.core.records import Energy


class _Part(NamedTuple):
    """A part of the attempt, from ``start_s`` (monotonic time) to the start of the next part."""

    start_s: float
    intensity: Intensity


class IntensityLog:
    """Follows the carbon intensity during an attempt.

    An instance is a function from energy to emissions. It uses the mean carbon intensity of the
    attempt so far, weighted with energy, also for the energy of earlier attempts and for forecasts.
    The report has the intensities of each attempt.

    Args:
        grid: the grid that supplies the machine; with ``None``, all emissions are unknown.
        recorder: provides the energies, and writes the journal.
        unix_s: wall time of the attempt's start, in seconds since 1970.
        pue: power usage effectiveness, by which energies are multiplied.
        now_s: returns the monotonic time.
    """

    def __init__(
        self,
        grid: Grid | None,
        recorder: JournalRecorder,
        unix_s: float,
        pue: float,
        now_s: Callable[[], float],
    ) -> None:
        self._grid = grid
        self._recorder = recorder
        self._to_unix_s = unix_s - recorder.start_s
        self._pue = pue
        self._now_s = now_s
        # Energy and mean intensity of the parts whose energy is final.
        self._past: list[tuple[float, Intensity]] = []
        self._parts: list[_Part] = []
        self._end_unix_s = math.inf
        self._has_warned = False
        self._file = grid.table.name if grid and grid.table else ""
        self._mean = grid.intensity if grid else None
        if grid is not None and grid.table is not None:
            self._begin(grid, unix_s)
            self._mean = self._parts[0].intensity

    def __call__(self, energy: Energy) -> EmissionsEstimate:
        """Return the emissions of an energy."""
        if self._mean is None:
            return EmissionsEstimate(None, None, None)
        return carbon.emissions(energy, self._mean, self._pue)

    def update(self) -> None:
        """Write the intensities up to now, and renew the mean; runs on the journal's thread."""
        now_unix_s = self._now_s() + self._to_unix_s
        while self._grid is not None and self._end_unix_s <= now_unix_s:
            self._begin(self._grid, self._end_unix_s)
        if self._past or len(self._parts) > 1:
            self._renew()

    def _begin(self, grid: Grid, unix_s: float) -> None:
        """Begin the part of the attempt that starts at a wall time."""
        intensity, self._end_unix_s, is_covered = grid.at(unix_s)
        start_s = unix_s - self._to_unix_s
        self._parts.append(_Part(start_s, intensity))
        self._recorder.timeline.pin(start_s)
        self._recorder.event("carbon_intensity", start_s, **asdict(intensity))
        if not is_covered and not self._has_warned:
            self._has_warned = True
            begin = datetime.fromtimestamp(unix_s, tz=UTC).strftime("%Y-%m-%d %H:%M")
            self._recorder.warn(
                "carbon_intensity_gap",
                f"{self._file} has no carbon intensity for {begin} UTC. For times without a "
                f"value, the report uses this one: {intensity.source}.",
                "use a file that covers the whole run",
            )

    def _renew(self) -> None:
        recorder, ends = self._recorder, [part.start_s for part in self._parts[1:]]
        used = [
            (self._energy_j(part.start_s, end_s), part.intensity)
            for part, end_s in zip(self._parts, [*ends, recorder.seen_s], strict=True)
        ]
        self._mean = mean([*self._past, *used])
        final = sum(end_s <= recorder.settled_s for end_s in ends)
        if final:
            past = [*self._past, *used[:final]]
            self._past = [(sum(energy_j for energy_j, _ in past), mean(past))]
            del self._parts[:final]

    def _energy_j(self, start_s: float, end_s: float) -> float:
        """Return the energy of all devices between two times, J; 0 if it is not known."""
        if end_s <= start_s:
            return 0.0
        timeline = self._recorder.timeline
        found = total(timeline.energy(key, start_s, end_s) for key in timeline.keys("total"))
        return found.energy_j or 0.0
