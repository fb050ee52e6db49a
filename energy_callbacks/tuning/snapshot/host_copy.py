"""Copies tensors and containers to host memory, and restores them in place."""

import copy
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

# Attributes of a module that ``keep_attributes`` leaves out. ``TorchSnapshot`` restores all of them
# except ``_modules``.
_STRUCTURE: Final = frozenset(
    {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training"}
)


class HostTensor:
    """A copy of a tensor's values in host memory; the tensor itself may be freed.

    Args:
        tensor: the tensor to copy, on any device.
    """

    def __init__(self, tensor: Any) -> None:
        self._tensor = weakref.ref(tensor)
        self._device = tensor.device
        self._values = to_host(tensor)

    def into_place(self) -> Any:
        """Restore the values of the tensor, and return the tensor.

        If the tensor was freed, or if its device, type, layout or shape has changed, a new tensor
        with the old values is returned; see ``anew``.
        """
        tensor = self._tensor()
        if tensor is None or tensor.device != self._device or not is_alike(tensor, self._values):
            return self.anew()
        write(self._values, tensor)
        return tensor

    def anew(self) -> Any:
        """Return a new tensor with the old values, on the device of the copied tensor.

        Expanded dimensions of the copied tensor have size 1 in the new tensor.
        """
        return self._values.to(self._device, copy=True)


def to_host(tensor: Any) -> Any:
    """Return a copy of a tensor in host memory. Expanded dimensions are copied with size 1."""
    return _once(tensor.detach()).to("cpu", copy=True)


def write(values: Any, tensor: Any) -> None:
    """Write values from ``to_host`` into a tensor, without another copy on the tensor's device.

    The caller must disable the recording of gradients.
    """
    _once(tensor).copy_(values)


def is_alike(tensor: Any, values: Any) -> bool:
    """Return whether a tensor still has the type, layout and shape with which it was copied.

    Args:
        tensor: the tensor.
        values: the copy that ``to_host`` returned.
    """
    one = _once(tensor.detach())
    return (one.dtype, one.layout, one.shape) == (values.dtype, values.layout, values.shape)


def is_strided(tensor: Any) -> bool:
    """Return whether a tensor is dense (not sparse) in memory."""
    return bool(tensor.layout is _torch().strided)


def _torch() -> Any:
    return sys.modules["torch"]  # the caller has tensors, so torch is imported


def _once(tensor: Any) -> Any:
    """Return a view in which expanded dimensions have size 1, because PyTorch cannot write them."""
    if is_strided(tensor):
        for dimension, stride in enumerate(tensor.stride()):
            if stride == 0 and tensor.shape[dimension] > 1:
                tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def keep(value: Any, seen: set[int] | None = None, *, deep: bool = True) -> Callable[[], Any]:
    """Copy a value and everything in it, and return a function that restores the value in place.

    Args:
        value: a tensor, a plain value, or a container of these.
        seen: ids of objects that are not copied. The id of each copied container is added, because
            containers may contain each other. ``None`` for no ids.
        deep: whether plain values and tuples are copied too. If ``False``, the returned function
            returns the same plain values and tuples, and parameters of modules are not copied.

    Returns:
        A function that restores and returns the old value; it may be called any number of times.
        Dicts, lists, sets and deques outside of tuples are the same objects as before, with their
        old contents; for tensors see ``HostTensor.into_place``.
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
    """Copy a value, and return a function that creates a new object with that value."""
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
    """Copy the plain attributes of a PyTorch module and its submodules.

    Plain attributes are all attributes except parameters, buffers, submodules and ``training``.
    Examples are counters, lists to which steps append, and the states of metrics. The returned
    function restores the contents of containers and the values of tensors. Any other attribute
    refers to its old object again; changes inside that object remain.

    Returns:
        A function that restores the attributes, and removes attributes that have been added.
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
    """Return a function that restores the current items (not copied) of dicts, lists and sets."""
    kept = [(held, dict(held) if hasattr(held, "items") else list(held)) for held in containers]

    def restore() -> None:
        for held, items in kept:
            # Unchanged containers are not written: the dicts of scripted modules are read-only.
            if _ids(held) != _ids(items):
                _refill(held, items)

    return restore


def _ids(held: Any) -> Any:
    return {k: id(v) for k, v in held.items()} if hasattr(held, "items") else [*map(id, held)]


def _refill_dict(held: dict[Any, Any], items: dict[Any, Callable[[], Any]]) -> Any:
    # Items that were added after the copy are deleted first, because they may occupy much memory.
    for key in held.keys() - items.keys():
        del held[key]
    return _refill(held, {key: item() for key, item in items.items()})


def _refill(held: Any, contents: Any) -> Any:
    held.clear()
    (held.extend if isinstance(held, list | deque) else held.update)(contents)
    return held
