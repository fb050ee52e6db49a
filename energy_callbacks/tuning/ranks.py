"""Exchanges the results of trials between ranks.

Each runs the trials of one size by itself, without a collective in a step, so that one that runs
out of memory leaves no other waiting. All then go on with the same trial, the worst of theirs, and
so ask for the same size next.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from energy_callbacks.accounting.metrics.energy_sums import UNKNOWN, total
from energy_callbacks.core.records import Energy
from energy_callbacks.tuning.search.trial import Trial

# Compilers may take minutes for a trial on one rank, while another is out of memory at once.
_PATIENCE: Final = timedelta(minutes=30)


class Ranks:
    """The processes of a PyTorch training; one alone exchanges with itself.

    All must make it, and call its methods, as often as each other. Results go over the
    hosts' network (gloo), and no device is synchronised.
    """

    def __init__(self) -> None:
        ranks = _joined()
        self._ranks: Any = ranks
        self._group: Any = None
        self.count, self.is_first = 1, True
        if ranks is not None:
            self.count = ranks.get_world_size()
            self.is_first = ranks.get_rank() == 0
            self._group = ranks.new_group(backend="gloo", timeout=_PATIENCE)

    def gather(self, mine: Any) -> list[Any]:
        """The value of each rank, by rank."""
        if self.count == 1:
            return [mine]
        told: list[Any] = [None] * self.count
        self._ranks.all_gather_object(told, mine, group=self._group)
        return told

    def agreed(self, run: Callable[[], Trial], memory_bytes: int | None) -> Trial:
        """Run a trial on each rank, and make one of them.

        Args:
            run: the trial of this rank.
            memory_bytes: of this rank's device.

        Raises:
            RuntimeError: if another rank has failed.
            Exception: what ``run`` raises; the other ranks receive it.
        """
        try:
            mine = run()
        except Exception as error:
            self.gather(f"{type(error).__name__}: {error}")
            raise
        told = self.gather((mine, memory_bytes))
        for rank, one in enumerate(told):
            if isinstance(one, str):
                raise RuntimeError(f"the search for a batch size has failed on rank {rank}: {one}")
        return mine if self.count == 1 else together(told)

    def close(self) -> None:
        """Give the group back."""
        if self._group is not None:
            self._ranks.destroy_process_group(self._group)
            self._group = None


def _joined() -> Any:
    """``torch.distributed`` if it connects processes."""
    ranks: Any = getattr(sys.modules.get("torch"), "distributed", None)
    is_there = ranks is not None and ranks.is_available() and ranks.is_initialized()
    return ranks if is_there else None


def together(told: Sequence[tuple[Trial, int | None]]) -> Trial:
    """One trial of those of all ranks.

    It fits if it fits on all; time is the slowest rank's, for which the others would wait;
    energy is that of all for as many steps. Its peak leaves as much of the smallest device free as
    is free where the least is.

    Args:
        told: the trial of each rank, and the memory of its device.
    """
    trials = [trial for trial, _ in told]
    cost_s = max(trial.cost_s for trial in trials)
    for rank, trial in enumerate(trials):
        if trial.status != "ok":
            reason = f"rank {rank}: {trial.reason}"
            return replace(trial, ranks=len(told), reason=reason, cost_s=cost_s)
    slowest = max(trials, key=lambda trial: trial.duration_s / trial.steps)
    return replace(
        slowest,
        ranks=len(told),
        energy=_energy(trials, slowest.steps),
        peak_bytes=_peak_bytes(told),
        cost_s=cost_s,
    )


def _energy(trials: Sequence[Trial], steps: int) -> Energy:
    """Of all for this many steps; a host's is known to one of its ranks alone."""
    energies = [_scaled(trial.energy, steps / trial.steps) for trial in trials]
    scopes = {trial.scope for trial in trials}
    if scopes == {"host"}:
        energies = [energy for energy in energies if energy.energy_j is not None]
    return total(energies) if len(scopes) == 1 else UNKNOWN


def _scaled(energy: Energy, by: float) -> Energy:
    return replace(
        energy,
        energy_j=None if energy.energy_j is None else energy.energy_j * by,
        stderr_j=energy.stderr_j * by,
        systematic_j=energy.systematic_j * by,
    )


def _peak_bytes(told: Sequence[tuple[Trial, int | None]]) -> int | None:
    sizes = [size for _, size in told if size is not None]
    left = [
        size - trial.peak_bytes
        for trial, size in told
        if size is not None and trial.peak_bytes is not None
    ]
    return min(sizes) - min(left) if left else None
