"""The only collective of this package: the used budget of all ranks, so that all stop together."""

import sys
from datetime import timedelta
from typing import Any, Final

# Longer than a checkpoint takes that one process writes while the others go on, shorter than the
# ten minutes after which NCCL gives up a training.
_PATIENCE: Final = timedelta(minutes=5)


class BudgetAllreduce:
    """Adds up a number over the processes of a PyTorch training.

    A call hands in a number and returns the sum of those that were handed in at the call before:
    by then it has arrived. The first call makes a group of its own, as all processes must at once;
    the sum goes over the hosts' network (gloo), so that no device is synchronised. All processes
    must call it after the same steps.
    """

    def __init__(self) -> None:
        self._world_size = 1
        self._group: Any = None
        self._whole: Any = None
        self._under_way: tuple[Any, Any] | None = None

    def begin(self, world_size: int) -> None:
        """A training of this many processes begins."""
        self._world_size = world_size
        self._under_way = None

    def __call__(self, number: float) -> float:
        """The sum of the last call; this process' own number if it is alone.

        Raises:
            RuntimeError: if PyTorch does not connect the processes, or they do not reach each
                other.
        """
        if self._world_size == 1:
            return number
        torch = sys.modules.get("torch")
        ranks = torch.distributed if torch else None
        if torch is None or ranks is None or not (ranks.is_available() and ranks.is_initialized()):
            raise RuntimeError("PyTorch does not connect the processes of this training")
        if self._group is None or self._whole is not ranks.group.WORLD:
            self._whole = ranks.group.WORLD
            self._group = ranks.new_group(backend="gloo", timeout=_PATIENCE)
        before = self._under_way
        mine = torch.tensor(number, dtype=torch.float64, device="cpu")
        self._under_way = mine, ranks.all_reduce(mine, group=self._group, async_op=True)
        if before is None:
            return 0.0
        total, work = before
        work.wait()
        return float(total)

    def __getstate__(self) -> dict[str, Any]:
        """A copy is in no training."""
        return {"_world_size": 1, "_group": None, "_whole": None, "_under_way": None}
