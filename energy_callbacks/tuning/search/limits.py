"""Finds which sizes fit according to the trials, and predicts the largest size that fits."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from energy_callbacks.tuning.search.trial import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the sizes that fit, as indices in the list of all sizes.

    Attributes:
        low: the largest size below ``high`` that ran and left the memory margin free; -1 if there
            is none.
        high: the smallest size that did not fit, or ran without leaving the memory margin free; the
            number of sizes if there is none.
        guess: the expected largest size that fits; at least ``low`` and below ``high``.
        probe: the next size to try in a search for the largest size that fits. If ``guess`` is
            derived from measured peaks, ``probe`` is ``guess``, but at least ``low + 1``. Otherwise
            it is the middle of ``low`` and ``high``. It is always below ``high``.
    """

    low: int
    high: int
    guess: int
    probe: int


def limits(sizes: Sequence[int], trials: Iterable[Trial], room_bytes: float | None) -> Limits:
    """Return the limits that the trials show.

    Args:
        sizes: all allowed sizes in ascending order.
        trials: all trials so far.
        room_bytes: the highest peak that leaves the memory margin free; ``None`` if unknown.
    """
    ran: dict[int, int | None] = {}
    high = len(sizes)
    for trial in trials:
        peak = trial.peak_bytes
        is_tight = peak is not None and room_bytes is not None and peak > room_bytes
        if trial.status != "ok" or is_tight:
            high = min(high, bisect_left(sizes, trial.size))
        if trial.status == "ok":
            before = ran.get(trial.size)
            ran[trial.size] = peak if before is None else max(before, peak or 0)
    low = max((i for size in ran if (i := bisect_left(sizes, size)) < high), default=-1)
    peaks = {size: peak for size, peak in ran.items() if peak is not None}
    most = predicted_largest(peaks, room_bytes)
    if room_bytes is not None and low >= 0 and high < len(sizes):
        fits, full = sizes[low], sizes[high]
        if fits in peaks and full in peaks and peaks[full] > peaks[fits]:
            share = (room_bytes - peaks[fits]) / (peaks[full] - peaks[fits])
            most = fits + share * (full - fits)
    guess = high if most is None else max(bisect_right(sizes, most) - 1, low)
    # Either there is no prediction, or the trials show that the predicted size does not fit.
    if most is None or high <= guess < len(sizes):
        return Limits(low=low, high=high, guess=high - 1, probe=(low + high) // 2)
    guess = min(guess, high - 1)
    return Limits(low=low, high=high, guess=guess, probe=min(max(guess, low + 1), high - 1))


def predicted_largest(peaks: Mapping[int, int], room_bytes: float | None) -> float | None:
    """Return the size at which the peak would be ``room_bytes``; ``None`` if not known.

    The peak is extrapolated along a line through the peak of the largest measured size. The slope
    of the line is the steepest of the slopes between this peak and the peaks of sizes at most half
    as large. Thus peaks that grow faster at larger sizes are underestimated less, and the
    allocator's block size has little influence.

    Args:
        peaks: peak in bytes of each size that ran.
        room_bytes: the highest peak that leaves the memory margin free; ``None`` if unknown.

    >>> predicted_largest({1: 1_100, 10: 2_000, 20: 3_000}, 10_000.0)
    90.0
    """
    if not peaks or room_bytes is None:
        return None
    last = max(peaks)
    slopes = [
        (peaks[last] - peak) / (last - size) for size, peak in peaks.items() if 2 * size <= last
    ]
    if not slopes or max(slopes) <= 0.0:
        return None
    return last + (room_bytes - peaks[last]) / max(slopes)
