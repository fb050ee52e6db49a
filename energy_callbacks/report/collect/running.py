"""Shortens the journal of a running process to the time whose energy is final.

The energy of the last seconds is not final: the energy counter of an H200, for example, is read
every four seconds. Phases that ended in these seconds have no energy yet. Without the shortening,
their energy would belong to the phase that is open at the end of the journal.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.report.collect.process import ProcessJournal

# ``EnergyMeter.report`` lets the meter write a line ``phases`` and then reads the journal. The
# report ends with this line even if the journal reaches further, by at most this time, s.
_FRESH_S = 2.0
# Counts in a line with steps that grow with time.
_COUNTS = ("steps", "samples", "tokens", "data_wait_s")


def until_settled(process: ProcessJournal) -> ProcessJournal:
    """Return the journal up to the newest moment at which the energy of all phases is final.

    This is the end of the newest span, or the time of the newest ``so_far`` line if it is later. If
    there is a recent line ``phases``, it is the time of that line.
    A journal without changes of phase is returned unchanged.
    """
    if not process.changes:
        return process
    closed_s = process.spans[-1].end_s if process.spans else 0.0
    end_s, so_far = max(closed_s, process.so_far_s), process.so_far
    if process.phases_s > end_s - _FRESH_S:
        end_s, so_far = process.phases_s, process.phases_so_far
    begun = bisect_right(process.changes, end_s, key=itemgetter(0))
    return replace(
        process,
        end_s=end_s,
        is_settled=True,
        so_far=so_far,
        spans=[span for span in process.spans if span.end_s <= end_s],
        windows=[window for window in process.windows if window.end_s <= end_s],
        open_phase=process.changes[begun - 1][1] if begun else "idle",
        columns={key: columns.until(end_s) for key, columns in process.columns.items()},
        steps=list(_steps(process.steps, end_s)),
        metrics=[line for line in process.metrics if line["t_s"] <= end_s],
        epochs=[line for line in process.epochs if line["t_s"] <= end_s],
        power_changes=[line for line in process.power_changes if line["t_s"] <= end_s],
    )


def _steps(lines: Sequence[Record], end_s: float) -> Iterator[Record]:
    """Yield the lines that begin before ``end_s``; counts of the last are in proportion to time."""
    for line in lines:
        start_s, width_s = line["start_s"], line["end_s"] - line["start_s"]
        if line["end_s"] <= end_s:
            yield line
        elif start_s < end_s:
            share = (end_s - start_s) / width_s
            counts = {name: line[name] and share * line[name] for name in _COUNTS}
            left = round(line["steps"] * (1.0 - share))
            counts["steps"], last = line["steps"] - left, line["last_step"] - left
            yield line | counts | {"end_s": end_s, "last_step": last}
