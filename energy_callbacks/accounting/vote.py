"""The only collective of ours: what all processes have used, so that all stop at the same step."""

import sys
from typing import Any


class Vote:
    """Adds up a number over the processes of a PyTorch training, without waiting for anybody.

    A call hands in a number and returns the sum of those that were handed in at the call before:
    by then it has arrived. The sum goes over the hosts' network (gloo), so that no device is
    synchronised. All processes must call it after the same steps.
    """

    def __init__(self) -> None:
        self._group: Any = None
        self._under_way: tuple[Any, Any] | None = None

    def __call__(self, number: float) -> float:
        """The sum of the last call; this process' own number where it is alone."""
        torch = sys.modules.get("torch")
        if torch is None:
            return number
        ranks = torch.distributed
        if not (ranks.is_available() and ranks.is_initialized()):
            return number
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
        return {"_group": None, "_under_way": None}
