"""Copies values to host memory, and restores them in place."""

import copy
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

# Parts of a module's structure, which ``TorchSnapshot`` restores.
_STRUCTURE: Final = frozenset(
    {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training"}
)


class HostTensor:
    """A copy of the values of a tensor. The tensor itself may be freed.

    Args:
        tensor: the tensor to copy, on any device.
    """

    def __init__(self, tensor: Any) -> None:
        self._tensor = weakref.ref(tensor)
        self._device = tensor.device
        self._values = to_host(tensor)

    def into_place(self) -> Any:
        """Return the tensor with its old values, or a new tensor if it was freed or changed."""
        tensor = self._tensor()
        if tensor is None or tensor.device != self._device or not is_alike(tensor, self._values):
            return self.anew()
        write(self._values, tensor)
        return tensor

    def anew(self) -> Any:
        """Return a new tensor with the old values on the same device."""
        return self._values.to(self._device, copy=True)


def to_host(tensor: Any) -> Any:
    """Copy a tensor to host memory. Each element of an expanded tensor is copied once."""
    return _once(tensor.detach()).to("cpu", copy=True)


def write(values: Any, tensor: Any) -> None:
    """Write values from ``to_host`` into a tensor, without another copy on the tensor's device.

    The caller must disable the recording of gradients.
    """
    _once(tensor).copy_(values)


def is_alike(tensor: Any, values: Any) -> bool:
    """Return whether a tensor has the type and shape of the tensor that ``to_host`` copied."""
    one = _once(tensor.detach())
    return (one.dtype, one.layout, one.shape) == (values.dtype, values.layout, values.shape)


def is_strided(tensor: Any) -> bool:
    """Return whether a tensor is dense in memory, not sparse."""
    return bool(tensor.layout is _torch().strided)


def _torch() -> Any:
    return sys.modules["torch"]  # the caller has tensors, so torch is imported


def _once(tensor: Any) -> Any:
    """Return a view with one element of each expanded dimension; PyTorch can write only this."""
    if is_strided(tensor):
        for dimension, stride in enumerate(tensor.stride()):
            if stride == 0 and tensor.shape[dimension] > 1:
                tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def keep(value: Any, seen: set[int] | None = None, *, deep: bool = True) -> Callable[[], Any]:
    """Copy a value with everything in it, and return a function that restores it in place.

    Args:
        value: a tensor, a plain value, or containers of these.
        seen: ids of objects that are not copied. Each copied container is added, because
            containers may contain each other.
        deep: whether plain values and tuples are copied too. If ``False``, the same objects are
            returned, and parameters of modules are not copied.

    Returns:
        A function that returns the old value any number of times: the same dicts, lists, sets,
        deques and (if they still exist) tensors, with their old contents.
    """
    seen = set() if seen is None else seen
    is_parameter = not deep and isinstance(value, _torch().nn.Parameter)
    if id(value) in seen or is_parameter:
        return lambda: value
    if isinstance(value, _torch().Tensor):
        return HostTensor(value).into_place
    if isinstance(value, dict):
        seen.add(id(value))
        items = {key: keep(item, seen, deep=deep) for key, item in value.items()}
        return lambda: _refill_dict(value, items)
    if isinstance(value, list | set | deque):
        seen.add(id(value))
        parts = [keep(item, seen, deep=deep) for item in value]
        return lambda: _refill(value, [part() for part in parts])
    return keep_copy(value) if deep else lambda: value


def keep_copy(value: Any) -> Callable[[], Any]:
    """Copy a value like ``keep``; the returned function makes new objects each time."""
    if isinstance(value, _torch().Tensor):
        return HostTensor(value).anew
    if isinstance(value, dict):
        items = {key: keep_copy(item) for key, item in value.items()}
        empty = copy.copy(value)  # keeps the class, which MultiStepLR requires for its milestones
        empty.clear()
        return lambda: _refill_dict(copy.copy(empty), items)
    if isinstance(value, list | tuple):
        parts = [keep_copy(item) for item in value]
        make = getattr(type(value), "_make", type(value))  # for named tuples
        return lambda: make(part() for part in parts)
    kept = copy.deepcopy(value)
    return lambda: copy.deepcopy(kept)


def keep_attributes(module: Any) -> Callable[[], None]:
    """Copy the attributes of a PyTorch module and its submodules, except tensors and children.

    Examples are counters, lists that steps append to, and the states of metrics. Containers get
    their old contents back, and tensors their old values. Any other attribute refers to its old
    object again; changes inside that object remain.

    Returns:
        A function that restores the attributes and removes new ones.
    """
    seen: set[int] = set()
    kept = [
        (held, {n: keep(v, seen, deep=False) for n, v in held.items() if n not in _STRUCTURE})
        for held in [part.__dict__ for part in module.modules()]
    ]

    def restore() -> None:
        for held, values in kept:
            for name in held.keys() - values.keys() - _STRUCTURE:
                del held[name]
            held.update({name: value() for name, value in values.items()})

    return restore


def keep_items(containers: Iterable[Any]) -> Callable[[], None]:
    """Return a function that restores the items of dicts, lists and sets. Items are not copied."""
    kept = [(held, dict(held) if hasattr(held, "items") else list(held)) for held in containers]

    def restore() -> None:
        for held, items in kept:
            if _ids(held) != _ids(items):  # dicts of scripted modules cannot be changed
                _refill(held, items)

    return restore


def _ids(held: Any) -> Any:
    return {k: id(v) for k, v in held.items()} if hasattr(held, "items") else [*map(id, held)]


def _refill_dict(held: dict[Any, Any], items: dict[Any, Callable[[], Any]]) -> Any:
    # Items that were added since the copy are deleted first to free memory: they may be large.
    for key in held.keys() - items.keys():
        del held[key]
    return _refill(held, {key: item() for key, item in items.items()})


def _refill(held: Any, contents: Any) -> Any:
    held.clear()
    (held.extend if isinstance(held, list | deque) else held.update)(contents)
    return held
