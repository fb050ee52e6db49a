"""Snapshots of PyTorch tensors and optimizers."""

from typing import Any

from energy_callbacks.tuning.snapshot.host_copy import is_strided, keep, to_host, write


class TensorSnapshot:
    """Snapshot of a parameter or buffer: values, storage, gradient and ``requires_grad``.

    Args:
        tensor: the parameter or buffer; it must have values, so it must not be lazy or on the meta
            device.
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
        """Remove the autograd graph or gradient that the tensor has received since the snapshot."""
        if self._is_leaf and not self._tensor.is_leaf:
            self._tensor.detach_()
        if self._tensor.is_leaf and not self._has_grad:
            self._tensor.grad = None

    def restore(self) -> None:
        """Restore the storage, values, ``requires_grad`` and gradient of the tensor."""
        if not _is_at(self._tensor, self._view):
            self._tensor.data = self._view
        write(self._values, self._tensor)
        if self._is_leaf and self._tensor.requires_grad != self._requires_grad:
            self._tensor.requires_grad_(self._requires_grad)
        if self._has_grad:
            self._tensor.grad = self._grad()


def _is_at(tensor: Any, view: Any) -> bool:
    """Return whether a tensor still has the device, type, layout and storage of ``view``.

    The storage of sparse tensors is not compared.
    """
    if (tensor.device, tensor.dtype, tensor.layout) != (view.device, view.dtype, view.layout):
        return False
    return bool(tensor.is_set_to(view)) if is_strided(view) else True


class OptimizerSnapshot:
    """Snapshot of an optimizer's state and parameter groups, but not of the parameters' values.

    Args:
        optimizer: the optimizer; its state is empty before its first step.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._state = {owner: keep(state) for owner, state in optimizer.state.items()}
        parameters = {id(held) for group in optimizer.param_groups for held in group["params"]}
        self._groups = [keep(group, set(parameters)) for group in optimizer.param_groups]

    def let_go(self) -> None:
        """Delete the state of parameters that had no state at the time of the snapshot."""
        state = self._optimizer.state
        for owner in [owner for owner in state if owner not in self._state]:
            del state[owner]

    def restore(self) -> None:
        """Restore the parameter groups and the state of each parameter."""
        self._optimizer.param_groups[:] = [group() for group in self._groups]
        for owner, state in self._state.items():
            self._optimizer.state[owner] = state()
