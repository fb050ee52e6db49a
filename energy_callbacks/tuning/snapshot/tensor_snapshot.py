"""Snapshots of PyTorch tensors and optimizers."""

from typing import Any

from energy_callbacks.tuning.snapshot.host_copy import is_strided, keep, to_host, write


class TensorSnapshot:
    """A parameter or buffer: values, place in memory, gradient and ``requires_grad``.

    Args:
        tensor: with values, so neither lazy nor on the meta device.
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
        """Drop what was added since: the graph behind a leaf, a gradient if there was none."""
        if self._is_leaf and not self._tensor.is_leaf:
            self._tensor.detach_()
        if self._tensor.is_leaf and not self._has_grad:
            self._tensor.grad = None

    def restore(self) -> None:
        """Restore the values in the same memory."""
        if not _is_at(self._tensor, self._view):
            self._tensor.data = self._view
        write(self._values, self._tensor)
        if self._is_leaf and self._tensor.requires_grad != self._requires_grad:
            self._tensor.requires_grad_(self._requires_grad)
        if self._has_grad:
            self._tensor.grad = self._grad()


def _is_at(tensor: Any, view: Any) -> bool:
    """Whether a tensor still has its old memory and type."""
    if (tensor.device, tensor.dtype, tensor.layout) != (view.device, view.dtype, view.layout):
        return False
    return bool(tensor.is_set_to(view)) if is_strided(view) else True


class OptimizerSnapshot:
    """An optimizer's state and parameter groups, without the values of the parameters.

    Args:
        optimizer: one that has not taken a step yet has no state.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._state = {owner: keep(state) for owner, state in optimizer.state.items()}
        parameters = {id(held) for group in optimizer.param_groups for held in group["params"]}
        self._groups = [keep(group, set(parameters)) for group in optimizer.param_groups]

    def let_go(self) -> None:
        """Drop the state of parameters that had none."""
        state = self._optimizer.state
        for owner in [owner for owner in state if owner not in self._state]:
            del state[owner]

    def restore(self) -> None:
        """Restore the same state for the same parameters."""
        self._optimizer.param_groups[:] = [group() for group in self._groups]
        for owner, state in self._state.items():
            self._optimizer.state[owner] = state()
