"""Chooses the next batch size to try, and the batch size to recommend.

::

    search = Search(SearchSettings(objective="energy", memory_bytes=80 * 2**30))
    while (size := search.ask()) is not None:
        search.tell(run(size))      # a Trial
    search.answer()

A search has no clock and no device. Its state is the list of trials, so a second search with the
same settings and trials continues in the same way.

The first sizes are far apart: each is up to eight times the previous one, and at most the largest
size that fits according to the measured peaks of memory. With the objective ``largest``, the next
sizes narrow down the largest size that fits. The other objectives use curves that are consistent
with the trials (``curve.py``). Each further trial runs the size, new or already tried, that may
change the answer most. The search can end when the expected cost at the answer is within 0.3 % of
the least cost. With the objective ``knee`` it can end when the standard error of the throughput at
the knee is at most 0.3 %.
"""

import math
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from energy_callbacks.tuning.search.choice import Choice
from energy_callbacks.tuning.search.costs import is_known
from energy_callbacks.tuning.search.limits import Limits, limits
from energy_callbacks.tuning.search.settings import SearchSettings
from energy_callbacks.tuning.search.trial import Trial

# Expected saving of cost for which a size above the largest one that fits is tried.
_WORTHWHILE: Final = 0.01
# Factor between two sizes at the start of a search.
_WIDE: Final = 8
# With the objective ``largest``: a tried size is close if its index differs by less than this from
# the index of the largest size that fits so far. For each close size, except that largest size
# itself, the minimum step from the largest size to the next one is doubled: many close sizes show
# that the predicted sizes were too low, so that the search advances too slowly.
_CLOSE: Final = 16


class SearchAnswer(NamedTuple):
    """The recommended size, which has run and left the memory margin free.

    Attributes:
        size: number of samples in a micro-batch on each rank; ``None`` if no size can be
            recommended.
        why: reason for the recommendation, or why there is none, in one sentence.
    """

    size: int | None
    why: str


class Search:
    """Proposes sizes and receives the results of their trials.

    Attributes:
        trials: all trials, in the order in which they were reported.
    """

    def __init__(self, settings: SearchSettings) -> None:
        self.trials: list[Trial] = []
        self._settings = settings
        self._sizes = settings.sizes
        self._is_largest = settings.objective == "largest"
        self._is_knee = settings.objective == "knee"
        self._choice: Choice | None = None

    def tell(self, trial: Trial) -> None:
        """Report the result of a trial; its size need not be one that ``ask`` returned.

        Raises:
            ValueError: if the settings do not allow the size, or if the trial ran but no step was
                measured.
        """
        if trial.size not in self._sizes:
            raise ValueError(
                f"a trial must have a size that the settings allow, got {trial.size}; pass the "
                "size that was asked for"
            )
        if trial.status == "ok" and not trial.samples_per_s:
            raise ValueError(
                f"a trial that ran needs steps and their time, got steps={trial.steps}, "
                f"duration_s={trial.duration_s}; measure at least one step"
            )
        self.trials.append(trial)
        self._choice = None
        if self._limits.high == 0:
            self._sizes = self._settings.small_sizes

    def ask(self) -> int | None:
        """Return the next size to try; ``None`` at the end of the search.

        Repeated calls return the same size until a trial is reported.
        """
        known = self._limits
        if self._left < 1 or known.high == 0:
            return None
        place = self._wide(known)
        if place is None:
            place = self._closer(known) if self._is_largest else self._refined(known)
        return None if place is None else self._sizes[place]

    def answer(self) -> SearchAnswer:
        """Return the best size according to the trials so far, or the reason why there is none."""
        known = self._limits
        if known.low < 0:
            return SearchAnswer(None, self._why_none(known))
        if self._is_largest:
            return SearchAnswer(self._sizes[known.low], self._why_largest(known))
        choice = self._chosen(known)
        if choice is None:
            why = "the energy of no trial is known: choose objective='knee' or 'throughput'"
            return SearchAnswer(None, why)
        return self._knee(choice) if self._is_knee else self._best(choice)

    def _why_none(self, known: Limits) -> str:
        if not self.trials:
            return "nothing was tried"
        smallest = min(self.trials, key=lambda trial: trial.size)
        if smallest.status != "ok":
            return (
                f"batch size {smallest.size} does not fit: {smallest.reason}; make min_size or "
                "the model smaller, or end other programs on the device"
            )
        rest = "" if known.high == 0 else "; smaller ones were not tried"
        return (
            f"no batch size fits. Size {smallest.size}: its peak of {smallest.peak_bytes} bytes "
            f"leaves less than {self._settings.memory_margin:.0%} of the device free; make "
            f"memory_margin, min_size or the model smaller{rest}"
        )

    @property
    def _limits(self) -> Limits:
        return limits(self._sizes, self.trials, self._settings.room_bytes)

    @property
    def _left(self) -> int:
        """Number of further trials of mean duration that ``max_trials`` and ``max_s`` allow."""
        left = self._settings.most_trials - len(self.trials)
        spent_s = math.fsum(trial.cost_s for trial in self.trials)
        if self._settings.max_s is None or not spent_s:
            return left
        each_s = spent_s / len(self.trials)
        return min(left, int((self._settings.max_s - spent_s) / each_s))

    def _wide(self, known: Limits) -> int | None:
        """Return the index of the next size at the start of a search; ``None`` after the start.

        The first size is ``start_size`` or the smallest size. Each later size is at most ``_WIDE``
        times the largest size that fits so far; if none fits so far, it is about 1 / ``_WIDE`` of
        the smallest size that did not fit.

        The start is over as soon as one size fits and a larger size does not, or the predicted
        largest size is less than 1.5 times the largest size that fits so far.
        """
        if not self.trials:
            start = self._settings.start_size
            return 0 if start is None else max(bisect_right(self._sizes, start) - 1, 0)
        if known.low < 0:
            smaller = self._sizes[known.high] // _WIDE
            return max(bisect_right(self._sizes, smaller) - 1, 0)
        low, most = self._sizes[known.low], self._sizes[known.guess]
        if known.high < len(self._sizes) or 2 * most < 3 * low:
            return None
        place = bisect_right(self._sizes, min(_WIDE * low, most)) - 1
        return place if place > known.low else None

    def _closer(self, known: Limits) -> int | None:
        """Return the index of the next size for ``largest``.

        The result is ``None`` as soon as it is known which size is the largest that fits.
        """
        if known.high - known.low == 1:
            return None
        tried = {bisect_left(self._sizes, trial.size) for trial in self.trials}
        creeps = sum(abs(place - known.low) < _CLOSE for place in tried)
        is_closed = known.high < len(self._sizes)
        if is_closed and len(self.trials) % 2 == 0:
            # Every second trial bisects the range instead of using the predicted size: predictions
            # assume that peaks of memory are linear in the size, which may be wrong.
            return (known.low + known.high) // 2
        ahead = 1 << max(creeps - 1, 0)
        return min(max(known.probe, known.low + ahead), known.high - 1)

    def _refined(self, known: Limits) -> int | None:
        """Return the index of the size whose trial may change the answer most, or ``None``."""
        choice = self._chosen(known)
        if choice is None:
            return known.low if len(self.trials) == 1 else None
        if choice.gain > _WORTHWHILE:
            return known.probe
        if self._is_knee:
            size = choice.next_for_knee(self._settings.knee_share, self._left)
        else:
            size = choice.next_for_best()
        return None if size is None else bisect_left(self._sizes, size)

    def _chosen(self, known: Limits) -> Choice | None:
        """Return the estimated costs; ``None`` if no size that fits has a trial with known cost."""
        if self._choice is None:
            weight, fits = self._settings.energy_weight, self._sizes[: known.low + 1]
            known_trials = [trial for trial in self.trials if is_known(trial, weight)]
            if any(trial.size in fits for trial in known_trials):
                self._choice = Choice(known_trials, weight, fits, self._sizes[known.probe])
        return self._choice

    def _knee(self, choice: Choice) -> SearchAnswer:
        share = self._settings.knee_share
        size, loss, error = choice.knee_that_ran(share)
        return SearchAnswer(
            size,
            f"{size} is the knee, the smallest size tried with nearly the highest throughput: "
            f"{loss:.1%} below the best (standard error {error:.1%}), and {share:.0%} is allowed",
        )

    def _best(self, choice: Choice) -> SearchAnswer:
        what = {0.0: "highest throughput", 1.0: "lowest energy per sample"}.get(
            self._settings.energy_weight, "lowest cost of time and energy"
        )
        return SearchAnswer(
            choice.best,
            f"{choice.best} has the {what} of the sizes that were tried, and is expected to be "
            f"within {max(choice.loss, 0.001):.1%} of the best of all",
        )

    def _why_largest(self, known: Limits) -> str:
        size = self._sizes[known.low]
        if known.high == len(self._sizes):
            if known.low == known.high - 1:
                return f"{size} is the largest size allowed, and it fits"
            return f"{size} is the largest that was tried, and it fits"
        return f"{size} is the largest that fits: {self._sizes[known.high]} does not"
