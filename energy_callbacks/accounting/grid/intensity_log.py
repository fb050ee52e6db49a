"""Writes the carbon intensities of an attempt to its journal, and computes emissions during it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, NamedTuple

from energy_callbacks.accounting.grid.grid import Grid, mean
from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.accounting.metrics.carbon import EmissionsEstimate, Intensity
from energy_callbacks.accounting.metrics.energy_sums import total
from energy_callbacks.accounting.recorder import JournalRecorder
from energy_callbacks.core.records import Energy


def intensity_in(state: Mapping[str, Any]) -> Intensity | None:
    """Return the mean carbon intensity in the state of a meter; ``None`` if there is none."""
    try:
        return Intensity(**state["intensity"])
    except (KeyError, TypeError):  # the state is from another version
        return None


class _Part(NamedTuple):
    """A part of the attempt, from ``start_s`` (monotonic time) to the start of the next part."""

    start_s: float
    intensity: Intensity


class IntensityLog:
    """Follows the carbon intensity during an attempt.

    An instance is a function from energy to emissions. It uses the mean carbon intensity of the run
    so far, weighted with energy, so that the emissions of the energy so far are the sum over all
    windows of energy times intensity. Forecasts use the same mean.

    Args:
        grid: the grid that supplies the machine; with ``None``, all emissions are unknown.
        recorder: provides the energies, and writes the journal.
        unix_s: wall time of the attempt's start, in seconds since 1970.
        pue: power usage effectiveness, by which energies are multiplied.
        now_s: returns the monotonic time.
        earlier: energy of earlier attempts in J, and their mean intensity, from ``intensity_in``;
            ``None`` if it is not known: then their energy has the mean of this attempt.

    Attributes:
        mean: the mean carbon intensity of the run so far; ``None`` without a grid.
    """

    def __init__(
        self,
        grid: Grid | None,
        recorder: JournalRecorder,
        unix_s: float,
        pue: float,
        now_s: Callable[[], float],
        *,
        earlier: tuple[float, Intensity | None] = (0.0, None),
    ) -> None:
        self._grid = grid
        self._recorder = recorder
        self._to_unix_s = unix_s - recorder.start_s
        self._pue = pue
        self._now_s = now_s
        # Energy and mean intensity of the parts whose energy is final.
        self._past = [] if earlier[1] is None else [(earlier[0], earlier[1])]
        self._parts = [_Part(recorder.start_s, grid.intensity)] if grid else []
        self._end_unix_s = math.inf
        self._has_warned = False
        self._file = grid.table.name if grid and grid.table else ""
        if grid is not None and grid.table is not None:
            self._parts = []
            self._begin(grid, unix_s)
        self.mean = self._parts[0].intensity if self._parts else None
        self._renew()

    def __call__(self, energy: Energy) -> EmissionsEstimate:
        """Return the emissions of an energy."""
        if self.mean is None:
            return EmissionsEstimate(None, None, None)
        return carbon.emissions(energy, self.mean, self._pue)

    def update(self) -> None:
        """Write the intensities up to now, and renew the mean; runs on the journal's thread."""
        now_unix_s = self._now_s() + self._to_unix_s
        while self._grid is not None and self._end_unix_s <= now_unix_s:
            self._begin(self._grid, self._end_unix_s)
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
        if not self._parts or (len(self._parts) == 1 and not self._past):
            return  # the mean is that of the only part
        recorder, ends = self._recorder, [part.start_s for part in self._parts[1:]]
        used = [
            (self._energy_j(part.start_s, end_s), part.intensity)
            for part, end_s in zip(self._parts, [*ends, recorder.seen_s], strict=True)
        ]
        self.mean = mean([*self._past, *used])
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
