"""Exchanges the results of trials between ranks.

Each rank runs its trial of a size without collective operations, so that a rank that runs out of
memory does not block others. Then all ranks continue with one combined trial (``together``), and
therefore choose the same next size.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from energy_callbacks.accounting.metrics.energy_sums import UNKNOWN, total
from energy_callbacks.core.records import Energy
from energy_callbacks.tuning.search.trial import Trial

# Time limit of an exchange between ranks. On one rank a compiler may take minutes, while another
# rank has already run out of memory and waits.
_PATIENCE: Final = timedelta(minutes=30)


class Ranks:
    """The processes of a PyTorch training, or a single process.

    All processes must create such an object and call its methods in the same order. Results are
    exchanged over the hosts' network (gloo); no device is synchronized.

    Attributes:
        count: number of processes.
        is_first: whether this process is rank 0.
    """

    def __init__(self) -> None:
        ranks: Any = getattr(sys.modules.get("torch"), "distributed", None)
        self._ranks, self._group = ranks, None
        self.count, self.is_first = 1, True
        if ranks is not None and ranks.is_available() and ranks.is_initialized():
            self.count = ranks.get_world_size()
            self.is_first = ranks.get_rank() == 0
            self._group = ranks.new_group(backend="gloo", timeout=_PATIENCE)

    def gather(self, mine: Any) -> list[Any]:
        """Return the values of ``mine`` on all ranks, in the order of the ranks."""
        if self.count == 1:
            return [mine]
        values: list[Any] = [None] * self.count
        self._ranks.all_gather_object(values, mine, group=self._group)
        return values

    def agreed(self, run: Callable[[], Trial], memory_bytes: int | None) -> Trial:
        """Run the trial of this rank, and return the combined trial of all ranks.

        Args:
            run: runs the trial of this rank.
            memory_bytes: memory of this rank's device; ``None`` if unknown.

        Raises:
            RuntimeError: if ``run`` has raised an error on another rank.
            Exception: any error that ``run`` raises on this rank; the other ranks receive its text.
        """
        try:
            mine = run()
        except Exception as error:
            self.gather(f"{type(error).__name__}: {error}")
            raise
        results = self.gather((mine, memory_bytes))
        for rank, one in enumerate(results):
            if isinstance(one, str):
                raise RuntimeError(f"the search for a batch size has failed on rank {rank}: {one}")
        return mine if self.count == 1 else together(results)

    def close(self) -> None:
        """Destroy the process group that this object has created."""
        if self._group is not None:
            self._ranks.destroy_process_group(self._group)
            self._group = None


def together(results: Sequence[tuple[Trial, int | None]]) -> Trial:
    """Combine the trials of all ranks.

    The size fits if it fits on all ranks. The steps and their duration are those of the slowest
    rank, because the other ranks would wait for it. The energy is the sum of the ranks' energies,
    each scaled to the number of steps of the slowest rank. The peak is the memory of the smallest
    device minus the least memory that a device has free at its peak.

    Args:
        results: trial and memory of the device, in bytes, of each rank; the memory is ``None`` if
            unknown.
    """
    trials = [trial for trial, _ in results]
    cost_s = max(trial.cost_s for trial in trials)
    for rank, trial in enumerate(trials):
        if trial.status != "ok":
            reason = f"rank {rank}: {trial.reason}"
            return replace(trial, ranks=len(trials), reason=reason, cost_s=cost_s)
    slowest = max(trials, key=lambda trial: trial.duration_s / trial.steps)
    return replace(
        slowest,
        ranks=len(trials),
        energy=_energy(trials, slowest.steps),
        peak_bytes=_peak_bytes(results),
        cost_s=cost_s,
    )


def _energy(trials: Sequence[Trial], steps: int) -> Energy:
    """Return the sum of the trials' energies, each scaled to ``steps`` steps.

    Unknown energies of hosts are ignored, because only one rank of a host knows its energy. The sum
    is unknown if the energy of a rank's GPUs is unknown, or if the trials have different scopes.
    """
    energies = [_scaled(trial.energy, steps / trial.steps) for trial in trials]
    scopes = {trial.scope for trial in trials}
    known = [energy for energy in energies if energy.energy_j is not None]
    if len(scopes) > 1 or ("gpu" in scopes and len(known) < len(energies)):
        return UNKNOWN
    return total(known)


def _scaled(energy: Energy, by: float) -> Energy:
    return replace(
        energy,
        energy_j=None if energy.energy_j is None else energy.energy_j * by,
        stderr_j=energy.stderr_j * by,
        edge_j=energy.edge_j * by,
        systematic_j=energy.systematic_j * by,
    )


def _peak_bytes(results: Sequence[tuple[Trial, int | None]]) -> int | None:
    known = [(trial.peak_bytes, size) for trial, size in results if size is not None]
    free = [size - peak for peak, size in known if peak is not None]
    return min(size for _, size in known) - min(free) if free else None
