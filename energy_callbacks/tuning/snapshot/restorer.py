"""Makes the function that restores a training after trials."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from energy_callbacks.tuning.snapshot.random_state import RandomState
from energy_callbacks.tuning.snapshot.torch_snapshot import TorchSnapshot


def restorer(keep: Sequence[Any], restore: Callable[[], None] | None) -> Callable[[], None]:
    """Make the function that restores the given objects and the random generators.

    Args:
        keep: modules, optimizers, and whatever else has ``state_dict`` and ``load_state_dict``.
        restore: puts back what is the user's own; called last.

    Raises:
        TypeError: for something that is none of these.
        ValueError: if PyTorch is not there, whose objects these are.
    """
    torch = sys.modules.get("torch")
    calls: list[Callable[[], None]] = []
    if keep:
        calls.append(_snapshot(keep, torch).restore)
    else:
        calls.append(RandomState(torch).restore)
    if restore is not None:
        calls.append(restore)

    def all_of_them() -> None:
        for call in calls:
            call()

    return all_of_them


def _snapshot(keep: Sequence[Any], torch: Any) -> TorchSnapshot:
    if torch is None:
        raise ValueError(
            f"keep takes objects of PyTorch, which is not imported, got {len(keep)}; put back "
            "what your step changes with restore="
        )
    kinds = torch.nn.Module, torch.optim.Optimizer, torch.amp.GradScaler
    modules, optimizers, scalers = ([o for o in keep if isinstance(o, kind)] for kind in kinds)
    return TorchSnapshot(
        modules=modules,
        optimizers=optimizers,
        scalers=scalers,
        others=[one for one in keep if not isinstance(one, kinds)],
    )
