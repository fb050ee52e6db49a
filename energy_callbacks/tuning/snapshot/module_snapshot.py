"""Snapshots of a PyTorch module and its tensors."""

from typing import Any

from energy_callbacks.tuning.snapshot.host_copy import is_strided, keep, to_host, write


class TensorSnapshot:
    """A parameter or buffer: values, place in memory, gradient, and whether it wants one.

    Args:
        tensor: one with values.
    """

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self._view = tensor.detach()
        self._values = to_host(tensor)
        self._is_leaf = tensor.is_leaf
        self._requires_grad = tensor.requires_grad
        self._has_grad = tensor.is_leaf and tensor.grad is not None
        self._grad = keep(tensor.grad if self._has_grad else None)

    def let_go(self) -> None:
        """Drop what has come since: a graph behind a leaf, a gradient if there was none."""
        if self._is_leaf and not self._tensor.is_leaf:
            self._tensor.detach_()
        if self._tensor.is_leaf and not self._has_grad:
            self._tensor.grad = None

    def restore(self) -> None:
        """The same values in the same memory."""
        if not _is_at(self._tensor, self._view):
            self._tensor.data = self._view
        write(self._values, self._tensor)
        if self._is_leaf and self._tensor.requires_grad != self._requires_grad:
            self._tensor.requires_grad_(self._requires_grad)
        if self._has_grad:
            self._tensor.grad = self._grad()


def _is_at(tensor: Any, view: Any) -> bool:
    """Whether a tensor still is where it was, in its type."""
    if (tensor.device, tensor.dtype, tensor.layout) != (view.device, view.dtype, view.layout):
        return False
    return bool(tensor.is_set_to(view)) if is_strided(view) else True


class ModuleSnapshot:
    """A module's mode, and its tensors by name.

    Args:
        module: without its children.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._is_training = module.training
        self._parameters = dict(module._parameters)  # noqa: SLF001 - no public way to put one back
        self._buffers = dict(module._buffers)  # noqa: SLF001
        self._fleeting = set(module._non_persistent_buffers_set)  # noqa: SLF001

    def restore(self) -> None:
        """The same tensors under the same names, and the mode."""
        _refill(self._module._parameters, self._parameters)  # noqa: SLF001
        _refill(self._module._buffers, self._buffers)  # noqa: SLF001
        fleeting = self._module._non_persistent_buffers_set  # noqa: SLF001
        fleeting.clear()
        fleeting.update(self._fleeting)
        if self._module.training != self._is_training:
            self._module.training = self._is_training


def _refill(now: Any, before: dict[str, Any]) -> None:
    if {name: id(held) for name, held in now.items()} != {n: id(t) for n, t in before.items()}:
        now.clear()
        now.update(before)
