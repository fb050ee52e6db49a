"""Writes the lines of the journal that have measured values: spans, steps, series and totals."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.journal import JournalWriter, Record
from energy_callbacks.accounting.metrics.data_wait import DataWaitEnergy
from energy_callbacks.accounting.metrics.step_counts import StepCounts, StepLog
from energy_callbacks.accounting.phases import PhaseSpan
from energy_callbacks.core.records import Quantity
from energy_callbacks.sensing.timeline import Timeline

# Minimum time that a ``steps`` line covers (except the last line), s. The report computes the
# energy between the ends of these lines; in a shorter time, there are too few readings.
_POOL_S = 0.5
# Time between two ``so_far`` lines with the total energy, as a share of the time since the start,
# and the longest and the shortest such time, s. The report of a running process ends with the
# newest of these lines, and the report of a killed process takes its errors from it.
_SO_FAR_SHARE = 0.1
_SO_FAR_S = 10.0
_SHORTEST_S = 0.1
# A device whose first reading is later than this after the start of the attempt begins late, s.
_LATE_S = 1.0


def mean(values: Sequence[float]) -> float:
    """Return the mean of a few values; for one or two values, NumPy takes ten times as long."""
    return sum(values) / len(values)


# For each quantity in ``series`` lines, except power and energy: the quantity's key in the journal,
# and the function that reduces all values since the previous line to one value.
_SERIES: dict[Quantity, tuple[str, Callable[[Sequence[float]], float]]] = {
    "utilisation": ("utilisation", mean),
    "sm_active": ("sm_active", mean),
    "sm_occupancy": ("sm_occupancy", mean),
    "tensor_active": ("tensor_active", mean),
    "dram_active": ("dram_active", mean),
    "memory_utilisation": ("memory_utilisation", mean),
    "temperature": ("temperature_c", max),
    "clock": ("clock_hz", mean),
    "memory_clock": ("memory_clock_hz", mean),
    "memory_used": ("memory_used_bytes", max),
    "rss": ("rss_bytes", max),
    "allocated": ("allocated_bytes", max),
    "peak_allocated": ("peak_allocated_bytes", max),
    "throttled": ("throttled_s", max),
}


class MeasuredLines:
    """Takes energies and readings from the timeline, and writes them; runs on the journal's thread.

    The arguments are those of ``JournalRecorder``.

    Attributes:
        so_far_s: monotonic time at which the newest ``so_far`` line ends.
    """

    def __init__(
        self, timeline: Timeline, steps: StepLog, writer: JournalWriter, start_s: float
    ) -> None:
        self._timeline = timeline
        self._steps = steps
        self._writer = writer
        self._start_s = start_s
        self._waiting = DataWaitEnergy(timeline, steps, start_s)
        self._pooled = StepCounts(t_s=start_s)
        self._written = {"samples": 0.0, "tokens": 0.0}
        self._row_s = start_s
        self._row_ends: dict[str, float] = {}
        self.so_far_s = start_s

    def write_spans(
        self, spans: deque[PhaseSpan], until_s: float, kind: str, name_key: str
    ) -> bool:
        """Write the spans that end until ``until_s``, and return whether there are any."""
        has_any = False
        while spans and spans[0].end_s <= until_s:
            span, has_any = spans.popleft(), True
            self._writer.write(
                {
                    "type": "event",
                    "kind": kind,
                    name_key: span.name,
                    "start_s": span.start_s - self._start_s,
                    "end_s": span.end_s - self._start_s,
                    "energy": self._energies(span.start_s, span.end_s),
                }
            )
        return has_any

    def write_steps(self, seen_s: float, *, is_final: bool) -> None:
        """Write a line with the steps until ``seen_s``, if the last one is old or ``is_final``."""
        tally, before = self._steps.advance(seen_s), self._pooled
        if tally == before or (tally.t_s - before.t_s < _POOL_S and not is_final):
            return
        self._pooled = tally
        self._writer.write(
            {
                "type": "event",
                "kind": "steps",
                "start_s": before.t_s - self._start_s,
                "end_s": tally.t_s - self._start_s,
                "end_error_s": tally.t_error_s,
                "steps": tally.steps - before.steps,
                "samples": self._since_written("samples", tally.samples),
                "tokens": self._since_written("tokens", tally.tokens),
                "last_step": tally.steps,
                "data_wait_s": tally.wait_s - before.wait_s if self._steps.sees_waits else None,
            }
        )

    def _since_written(self, name: str, count: float | None) -> float | None:
        """Return the count since the previous line with a known count; ``None`` if unknown."""
        if count is None:
            return None
        before, self._written[name] = self._written[name], count
        return count - before

    def write_series(self, now_s: float, until_s: float) -> None:
        """Write a row of each device, with its readings from the previous row to ``until_s``."""
        if now_s <= self._row_s:
            return
        self._write_rows({key: {"seen_s": t_s} for key, t_s in self._late_starts()}, now_s)
        rows = {one.key: self._row(one.key, now_s, until_s) for one in self._timeline.devices}
        self._row_s = now_s
        self._write_rows(rows, now_s)

    def _write_rows(self, rows: Mapping[str, Mapping[str, float | None]], now_s: float) -> None:
        if known := {key: journal.row_as_json(row) for key, row in rows.items() if row}:
            t_s = round(now_s - self._start_s, 6)
            self._writer.write({"type": "series", "t_s": t_s, "rows": known})

    def _late_starts(self) -> Iterator[tuple[str, float]]:
        """Yield devices whose readings have begun late, and the time of their first reading, s.

        A row with only ``seen_s`` tells the report that the energy before is not known.
        """
        for key in self._timeline.metered:
            if key in self._row_ends:
                continue
            first_s = self._timeline.start_s(key)
            if first_s is not None and first_s - self._start_s > _LATE_S:
                self._row_ends[key] = first_s
                yield key, first_s - self._start_s

    def _row(self, key: str, now_s: float, until_s: float) -> dict[str, float | None]:
        row: dict[str, float | None] = {}
        newest_s = self._timeline.newest_s(key)
        if newest_s is not None and newest_s > self._start_s:
            newest_s = min(newest_s, now_s)
            row["energy_j"], _ = self._timeline.seen(key, self._start_s, newest_s)
            row["seen_s"] = newest_s - self._start_s
            row["power_w"] = self._mean_power_w(key, newest_s)
        for quantity, values in self._timeline.gauges(key, self._row_s, until_s).items():
            if quantity in _SERIES:
                name, reduce = _SERIES[quantity]
                row[name] = reduce(values)
        return row

    def _mean_power_w(self, key: str, end_s: float) -> float | None:
        """Return the mean power of the device ``key`` since its previous row, W.

        Time without readings is left out.
        """
        start_s = self._row_ends.get(key, self._start_s)
        self._row_ends[key] = end_s
        if end_s <= start_s:
            return None
        return mean_power_w(*self._timeline.seen(key, start_s, end_s), end_s - start_s)

    def write_so_far(self, now_s: float, end_s: float, *, is_due: bool) -> None:
        """Write a ``so_far`` line until ``end_s`` if the last one is old or ``is_due`` is set.

        The line is due after a window, so that the newest line covers it, or if a report asks.
        """
        wait_s = min(_SO_FAR_SHARE * (end_s - self._start_s), _SO_FAR_S)
        if is_due or end_s - self.so_far_s >= max(wait_s, _SHORTEST_S):
            self.so_far_s = end_s
            self._waiting.update(now_s)
            energies = self._energies(self._start_s, end_s)
            line = {"type": "so_far", "t_s": end_s - self._start_s, "energy": energies}
            self._writer.write(line | self._waiting.record())

    def write_totals(self, end_s: float, status: str, error: str | None, **values: Any) -> None:
        """Write the ``totals`` line; see ``JournalRecorder.finish``."""
        self._waiting.update(end_s, is_final=True)
        energy = self._energies(self._start_s, end_s)
        values = self._waiting.record() | values
        self._writer.write(journal.totals(end_s - self._start_s, status, error, energy, **values))

    def _energies(self, start_s: float, end_s: float) -> Record:
        keys = self._timeline.metered if end_s > start_s else ()
        energies = {key: self._timeline.energy(key, start_s, end_s) for key in keys}
        return journal.energies_as_json(energies)


def mean_power_w(energy_j: float | None, coverage: float, duration_s: float) -> float | None:
    """Return the mean power in the part of a time span with readings, W.

    Args:
        energy_j: energy of the part with readings, J; if ``None``, the result is ``None``.
        coverage: length of this part, as a share of the time span.
        duration_s: length of the whole time span, s.
    """
    return None if energy_j is None else energy_j / (duration_s * coverage)
