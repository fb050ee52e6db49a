"""Sums the used share of the budget over all ranks, so that all ranks stop after the same step."""

import sys
from datetime import timedelta
from typing import Any, Final

# Maximum time to wait for the numbers of the other processes. The time is longer than one process
# needs to write a checkpoint, and shorter than the ten minutes after which NCCL aborts a training.
_PATIENCE: Final = timedelta(minutes=5)


class BudgetAllreduce:
    """Sums a number over the processes of a PyTorch training.

    Each call starts an asynchronous sum and returns the result of the sum that the previous call
    started. All processes must make the calls after the same steps. The sums use a separate process
    group with the backend gloo, which uses the hosts' network and synchronises no device.
    """

    def __init__(self) -> None:
        self._world_size = 1
        self._group: Any = None
        self._world: Any = None
        self._under_way: tuple[Any, Any] | None = None

    def begin(self, world_size: int) -> None:
        """Prepare for a new training with ``world_size`` processes."""
        self._world_size = world_size
        self._under_way = None

    def __call__(self, number: float) -> float:
        """Start the sum of ``number`` over all processes, and return the previous call's sum.

        The first call after ``begin`` returns 0. With a single process, each call returns
        ``number``.

        Raises:
            RuntimeError: if ``torch.distributed`` is not initialised, or the communication fails.
        """
        if self._world_size == 1:
            return number
        torch = sys.modules.get("torch")
        ranks = torch.distributed if torch else None
        if torch is None or ranks is None or not (ranks.is_available() and ranks.is_initialized()):
            raise RuntimeError("PyTorch does not connect the processes of this training")
        if self._group is None or self._world is not ranks.group.WORLD:
            self._world = ranks.group.WORLD
            self._group = ranks.new_group(backend="gloo", timeout=_PATIENCE)
        before = self._under_way
        own = torch.tensor(number, dtype=torch.float64, device="cpu")
        self._under_way = own, ranks.all_reduce(own, group=self._group, async_op=True)
        if before is None:
            return 0.0
        total, work = before
        work.wait()
        return float(total)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy, which belongs to no training and has no process group."""
        return {"_world_size": 1, "_group": None, "_world": None, "_under_way": None}
