"""Copies of values in host memory, restored in place."""

import copy
import sys
import weakref
from collections.abc import Callable
from typing import Any


class HostTensor:
    """The values of a tensor, kept without keeping the tensor.

    Args:
        tensor: of any device.
    """

    def __init__(self, tensor: Any) -> None:
        self._tensor = weakref.ref(tensor)
        self._device = tensor.device
        self._values = to_host(tensor)

    def into_place(self) -> Any:
        """The same tensor with its values again; a new one if it was let go of meanwhile."""
        tensor = self._tensor()
        if tensor is None or tensor.device != self._device or not is_alike(tensor, self._values):
            return self.anew()
        write(self._values, tensor)
        return tensor

    def anew(self) -> Any:
        """A new tensor with these values where the old one was."""
        return self._values.to(self._device, copy=True)


def to_host(tensor: Any) -> Any:
    """A copy in host memory, of an expanded tensor each element once."""
    return _once(tensor.detach()).to("cpu", copy=True)


def write(values: Any, tensor: Any) -> None:
    """Put values of ``to_host`` back into a tensor, on its device, without another copy there.

    To be called while no gradients are recorded.
    """
    _once(tensor).copy_(values)


def is_alike(tensor: Any, values: Any) -> bool:
    """Whether a tensor has the type and shape that values of ``to_host`` were taken from."""
    one = _once(tensor.detach())
    return (one.dtype, one.layout, one.shape) == (values.dtype, values.layout, values.shape)


def is_strided(tensor: Any) -> bool:
    """Whether a tensor lies in memory element by element, as no sparse one does."""
    return bool(tensor.layout is _torch().strided)


def _torch() -> Any:
    return sys.modules["torch"]  # the caller has tensors, so it is imported


def _once(tensor: Any) -> Any:
    """One of the equal slices along each dimension that was expanded; PyTorch writes no other."""
    if is_strided(tensor):
        for dimension, stride in enumerate(tensor.stride()):
            if stride == 0 and tensor.shape[dimension] > 1:
                tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def keep(value: Any) -> Callable[[], Any]:
    """Remember a value with all that it holds.

    Args:
        value: a tensor, a plain value, or dictionaries, lists and tuples of such.

    Returns:
        What gives it back, as often as one likes: the same dictionaries, lists and, if they
        still exist, tensors, with the values that they had.
    """
    if isinstance(value, _torch().Tensor):
        return HostTensor(value).into_place
    if isinstance(value, dict):
        items = {key: keep(item) for key, item in value.items()}
        return lambda: _refill_dict(value, items)
    if isinstance(value, list):
        parts = [keep(item) for item in value]
        return lambda: _refill_list(value, parts)
    return keep_copy(value)


def keep_copy(value: Any) -> Callable[[], Any]:
    """Remember a value like ``keep``, but give back new objects each time."""
    if isinstance(value, _torch().Tensor):
        return HostTensor(value).anew
    if isinstance(value, dict):
        items = {key: keep_copy(item) for key, item in value.items()}
        empty = copy.copy(value)  # of the same class, as the milestones of MultiStepLR want it
        empty.clear()
        return lambda: _refill_dict(copy.copy(empty), items)
    if isinstance(value, list | tuple):
        parts = [keep_copy(item) for item in value]
        make = getattr(type(value), "_make", type(value))  # of a named tuple
        return lambda: make(part() for part in parts)
    kept = copy.deepcopy(value)
    return lambda: copy.deepcopy(kept)


def _refill_dict(held: dict[Any, Any], items: dict[Any, Callable[[], Any]]) -> dict[Any, Any]:
    for key in held.keys() - items.keys():  # first: what has come since may be large
        del held[key]
    before = {key: item() for key, item in items.items()}
    held.clear()
    held.update(before)
    return held


def _refill_list(held: list[Any], parts: list[Callable[[], Any]]) -> list[Any]:
    held[:] = [part() for part in parts]
    return held
