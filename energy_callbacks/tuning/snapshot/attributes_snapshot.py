"""Snapshots of what PyTorch modules hold beside parameters, buffers and children.

Counters, lists that steps append to, the states of metrics: attributes that PyTorch knows nothing
of, and that a step on trial must not leave changed.
"""

import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from energy_callbacks.tuning.snapshot.host_copy import HostTensor

# Of ModuleSnapshot, and of the structure of the module itself.
_NOT_OURS: Final = frozenset(
    {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training"}
)


class AttributesSnapshot:
    """Attributes of a module and its submodules.

    Lists, dictionaries, sets and queues get their contents back, tensors their values; every other
    attribute is the same object again, whatever has become of its inside.

    Args:
        module: with its children.
    """

    def __init__(self, module: Any) -> None:
        seen: set[int] = set()
        self._kept = [
            (vars(part), {n: _keep(v, seen) for n, v in vars(part).items() if n not in _NOT_OURS})
            for part in module.modules()
        ]

    def restore(self) -> None:
        """The same attributes; those that have come since are gone."""
        for held, kept in self._kept:
            for name in held.keys() - kept.keys() - _NOT_OURS:
                del held[name]
            held.update({name: value() for name, value in kept.items()})


def _keep(value: Any, seen: set[int]) -> Callable[[], Any]:
    torch = sys.modules["torch"]  # the caller has modules, so it is imported
    if isinstance(value, torch.nn.Parameter) or id(value) in seen:
        return lambda: value
    if isinstance(value, torch.Tensor):
        return HostTensor(value).into_place
    if not isinstance(value, dict | list | set | deque):
        return lambda: value
    seen.add(id(value))  # containers may hold each other
    if isinstance(value, dict):
        items = {key: _keep(item, seen) for key, item in value.items()}
        return lambda: _refilled(value, {key: item() for key, item in items.items()})
    parts = [_keep(item, seen) for item in value]
    return lambda: _refilled(value, [part() for part in parts])


def _refilled(held: Any, contents: Any) -> Any:
    held.clear()
    (held.extend if isinstance(held, list | deque) else held.update)(contents)
    return held
