"""Measures the configurations of a profile one after the other, and writes each row at once."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from energy_callbacks.inference.profile.sweeps import Job
from energy_callbacks.inference.protocols import Bench
from energy_callbacks.inference.records import MeasuredWindow, Status

# Rows with one of these are not measured again: another try would give the same.
_FINAL: Final[tuple[Status, ...]] = ("ok", "oom")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of a profile after a row.

    Attributes:
        row: the row.
        done: number of rows measured so far, in this and earlier profiles.
        count: total number of rows.
        left_s: estimated time until the end, s.
    """

    row: MeasuredWindow
    done: int
    count: int
    left_s: float


def missing(jobs: Sequence[Job], rows: Iterable[MeasuredWindow]) -> list[Job]:
    """Return the jobs without a final row; a job that occurs n times needs n rows.

    Rows of time-outs and crashes do not count, so that they are measured again.
    """
    done = Counter(
        Job(configuration=row.configuration, phase=row.phase, mode=row.mode)
        for row in rows
        if row.status in _FINAL
    )
    left = []
    for job in jobs:
        if done[job]:
            done[job] -= 1
        else:
            left.append(job)
    return left


def measured(
    bench: Bench,
    jobs: Sequence[Job],
    append: Callable[[MeasuredWindow], None],
    *,
    window_s: float,
    warmup_s: float,
    run_id: str,
    done: int = 0,
) -> Iterator[Progress]:
    """Measure jobs, and yield the progress after each.

    Args:
        bench: measures a configuration.
        jobs: what to measure.
        append: writes a row; a row is written before the next configuration is measured.
        window_s: length of a window, s.
        warmup_s: time before each window, s.
        run_id: identifies the profile in its rows.
        done: number of rows of earlier profiles, for the progress.
    """
    start_s = time.monotonic()
    for number, job in enumerate(jobs, start=1):
        row = bench.measure(
            job.configuration, window_s=window_s, warmup_s=warmup_s, phase=job.phase, mode=job.mode
        )
        row = replace(row, run_id=run_id)
        append(row)
        left_s = (time.monotonic() - start_s) / number * (len(jobs) - number)
        yield Progress(row=row, done=done + number, count=done + len(jobs), left_s=left_s)
