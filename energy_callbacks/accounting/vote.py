"""The only collective of ours: what all processes have used, so that all stop at the same step."""

import sys
from typing import Any


class Vote:
    """Adds up a number over the processes of a PyTorch training, without waiting for anybody.

    A call hands in a number and returns the sum of those that were handed in at the call before:
    by then it has arrived. The sum goes over the hosts' network (gloo), so that no device is
    synchronised. All processes must call it after the same steps.

    Args:
        world_size: how many there are; several that PyTorch cannot connect get 0 as their sum,
            because each of them alone would stop at a step of its own.
    """

    def __init__(self, world_size: int = 1) -> None:
        self._world_size = world_size
        self._group: Any = None
        self._under_way: tuple[Any, Any] | None = None

    def __call__(self, number: float) -> float:
        """The sum of the last call; this process' own number where it is alone."""
        if self._world_size == 1:
            return number
        torch = sys.modules.get("torch")
        ranks = torch.distributed if torch else None
        if torch is None or ranks is None or not (ranks.is_available() and ranks.is_initialized()):
            return 0.0
        if self._group is None:
            self._group = ranks.new_group(backend="gloo")
        before = self._under_way
        mine = torch.tensor(number, dtype=torch.float64)
        self._under_way = mine, ranks.all_reduce(mine, group=self._group, async_op=True)
        if before is None:
            return 0.0
        total, work = before
        work.wait()
        return float(total)

    def __getstate__(self) -> dict[str, Any]:
        """A copy is in no training."""
        return self.__dict__ | {"_group": None, "_under_way": None}
