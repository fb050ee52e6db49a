"""Forecasts the energy and duration of a training from its beginning.

At most two forecasts are made:

* The early forecast is made after a tenth of the planned steps, or later if these steps are too few
  for a forecast. It assumes that the rest of the training consists of training steps only.
* The epoch forecast is made after the first epoch, or after several short epochs. It also includes
  validation and other work outside of training steps. If it is made before a tenth of the planned
  steps, there is no early forecast.

The energy and time per step are extrapolated (``extrapolation.py``) from a sample: the steps up to
the early forecast, or the steps of the epochs before the epoch forecast. The first tenth of the
sample is left out, and the rest is divided into nine parts. The error of a forecast allows for a
drift that continues, stops or doubles, and for correlated noise. It is assumed to be the same share
of the work outside of training steps. The systematic error of the sensors is not included: it
affects the forecast and the final measurement equally, so it causes no difference between them.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Final

from energy_callbacks.accounting.metrics.extrapolation import extrapolated
from energy_callbacks.accounting.metrics.scalars import ScalarBoard
from energy_callbacks.accounting.metrics.step_counts import StepCounts
from energy_callbacks.core.records import Energy
from energy_callbacks.core.units import watt_hours

# Number of parts into which the sample of steps is divided. The first part is not used, because
# kernels are selected and caches are filled during the first steps.
_PARTS: Final = 10
# Share of the planned steps after which the early forecast is made.
_EARLY_SHARE: Final = 0.1
# No forecast is made if the planned steps would take more than this number of seconds: ten years.
_LONGEST_S: Final = 10 * 365.25 * 86_400.0
# Maximum number of kept tallies (``StepCounts``). If there are more, every second one is dropped.
_MOST_TALLIES: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunForecast:
    """A forecast of energy and duration, with the half-widths of 95 % intervals.

    Attributes:
        after: text that names the measured part of the training, such as "the first epoch".
        steps: optimizer steps that this attempt had made when the forecast was made.
        planned_steps: optimizer steps that this attempt will have made at its end.
        energy_j: expected energy of all GPUs and hosts over all attempts, J.
        energy_error_j: half-width of the interval of ``energy_j``, J.
        duration_s: expected duration of this attempt, s.
        duration_error_s: half-width of the interval of ``duration_s``, s.
    """

    after: str
    steps: int
    planned_steps: int
    energy_j: float
    energy_error_j: float
    duration_s: float
    duration_error_s: float

    def __str__(self) -> str:
        unit, scale = ("kWh", 1e3) if self.energy_j >= 3.6e6 else ("Wh", 1.0)
        ends = (self.energy_j + sign * self.energy_error_j for sign in (0, -1, 1))
        middle, low, high = (f"{watt_hours(max(end, 0.0)) / scale:.3g}" for end in ends)
        length = timedelta(seconds=round(self.duration_s))
        return (
            f"forecast after {self.after}: {middle} {unit} ({low} to {high}) for the whole run, "
            f"in {length}"
        )


class Forecaster:
    """Makes forecasts during a training; ``update`` runs on the journal's thread.

    Args:
        board: provides step counts and energies.
        hosts: number of hosts; each host is assumed to use as much energy as this host.

    Attributes:
        planned_steps: optimizer steps that this attempt will have made at its end; ``None`` if
            unknown. Set by the meter.
        news: the newest forecast; ``None`` if there is none, or if the meter has already taken it.
    """

    def __init__(self, board: ScalarBoard, hosts: float) -> None:
        self._board = board
        self._hosts = hosts
        self._tallies: list[StepCounts] = []
        self._ended_s: deque[float] = deque()
        self._epochs = 0
        self._is_partial_epoch = False
        self._epoch_end_s: float | None = None
        self._is_early_made = False
        self._is_over = False
        self.planned_steps: int | None = None
        self.news: RunForecast | None = None

    def resume(self) -> None:
        """Record that training continues from a checkpoint, perhaps in the middle of an epoch."""
        self._is_partial_epoch = True

    def end_epoch(self, t_s: float) -> None:
        """Record that an epoch has ended; called by the training thread."""
        self._ended_s.append(t_s)

    def _take_epoch(self, end_s: float) -> None:
        """Use the end of an epoch.

        The epoch forecast needs more than ``_PARTS`` tallies at the end of an epoch. If there are
        fewer, the forecast is made after a later epoch, from all epochs up to that epoch. After
        ``resume``, the first epoch may be incomplete and is not used.
        """
        if self._is_partial_epoch:
            self._is_partial_epoch, self._tallies = False, []
        elif self._epoch_end_s is None:
            self._epochs += 1
            self._epoch_end_s = end_s if len(self._tallies) > _PARTS else None

    def update(self) -> None:
        """Make the early forecast or the epoch forecast, if it is due and not made yet."""
        while self._ended_s:
            self._take_epoch(self._ended_s.popleft())
        planned, tally = self.planned_steps, self._board.recorder.steps.tally
        if self._is_over or not tally.steps:
            return
        if not self._tallies or tally.steps > self._tallies[-1].steps:
            self._tallies.append(tally)
        if len(self._tallies) > _MOST_TALLIES:
            self._tallies = self._tallies[::2]
        if planned is None or tally.steps >= planned or len(self._tallies) <= _PARTS:
            return
        if self._epoch_end_s is not None and tally.t_s > self._epoch_end_s:
            self._is_over = True
            self._say(self._after_epoch(planned, self._epoch_end_s))
        elif not self._is_early_made and tally.steps >= _EARLY_SHARE * planned:
            self._is_early_made = True
            share = f"{self._tallies[-1].steps / planned:.0%} of the steps"
            # Work outside of training steps, such as validation, is forecast as 0 J and 0 s.
            self._say(self._forecast(share, planned, self._tallies, (0.0, 0.0)))

    def _say(self, forecast: RunForecast | None) -> None:
        if forecast is None:
            return
        self.news = forecast
        energy = Energy(energy_j=forecast.energy_j, systematic_j=forecast.energy_error_j)
        names = ("emissions_kg", "emissions_low_kg", "emissions_high_kg")
        emissions = dict(zip(names, self._board.emissions_kg(energy), strict=True))
        values = asdict(forecast) | emissions
        self._board.recorder.event("forecast", self._tallies[-1].t_s, **values)

    def _after_epoch(self, planned: int, epoch_end_s: float) -> RunForecast | None:
        """Return the epoch forecast; ``None`` if it cannot be made, see ``_forecast``.

        Work outside of training steps, such as validation, is measured from the first tally until
        the next epoch begins its first training step. No event marks the beginning of this step.
        The beginning is estimated from the newest tally, which is from the next epoch: the time of
        the tally, minus the time of the steps that the next epoch has made by then. Each of these
        steps is assumed to take the mean time of a step. In the rest of the training, the energy
        and the time of work outside of training steps are assumed to be proportional to the number
        of steps.

        Args:
            planned: see ``RunForecast.planned_steps``.
            epoch_end_s: monotonic time at which the last measured epoch ended.
        """
        inside = [tally for tally in self._tallies if tally.t_s <= epoch_end_s]
        newest, last = self._tallies[-1], inside[-1]
        step_s = (last.t_s - inside[0].t_s) / (last.steps - inside[0].steps)
        next_s = max(newest.t_s - step_s * (newest.steps - last.steps), last.t_s)
        energy_j, train_s = self._board.trained(inside[0], last)
        whole_j = self._board.total_j(inside[0].t_s, next_s)
        if energy_j is None or whole_j is None:
            return None
        epochs_left = (planned - newest.steps) / (last.steps - inside[0].steps)
        other_j = epochs_left * max(whole_j - energy_j, 0.0)
        other_s = epochs_left * max(next_s - inside[0].t_s - train_s, 0.0)
        after = "the first epoch" if self._epochs == 1 else f"{self._epochs} epochs"
        return self._forecast(after, planned, inside, (other_j, other_s))

    def _forecast(
        self, after: str, planned: int, tallies: Sequence[StepCounts], other: tuple[float, float]
    ) -> RunForecast | None:
        """Return a forecast from a sample of steps.

        Args:
            after: see ``RunForecast``.
            planned: see ``RunForecast.planned_steps``.
            tallies: step counts of the sample, oldest first.
            other: expected joules and seconds outside of training steps until the end.

        Returns:
            The forecast; ``None`` if the sample is too small, if an energy is unknown, or if the
            planned steps would take more than ten years.
        """
        ends = [tallies[round(i * (len(tallies) - 1) / _PARTS)] for i in range(_PARTS + 1)][1:]
        parts = list(pairwise(ends))
        steps = [now.steps - before.steps for before, now in parts]
        found = [self._board.trained(before, now) for before, now in parts]
        energies_j = [energy_j for energy_j, _ in found if energy_j is not None]
        newest = self._tallies[-1]
        used_j = self._board.total_j(self._board.start_s, newest.t_s)
        # Frameworks use a very large number of planned steps for "no limit".
        is_endless = (newest.t_s - self._board.start_s) * planned > _LONGEST_S * newest.steps
        if is_endless or len(energies_j) < len(parts) or used_j is None or not all(steps):
            return None
        left = planned - newest.steps
        step_j, share_j = extrapolated(energies_j, steps, left)
        step_s, share_s = extrapolated([train_s for _, train_s in found], steps, left)
        ahead_j = left * step_j + other[0]
        ahead_s = left * step_s + other[1]
        return RunForecast(
            after=after,
            steps=newest.steps,
            planned_steps=planned,
            energy_j=(self._board.earlier.of("total") + used_j + ahead_j) * self._hosts,
            energy_error_j=ahead_j * share_j * self._hosts,
            duration_s=newest.t_s - self._board.start_s + ahead_s,
            duration_error_s=ahead_s * share_s,
        )
