"""Snapshots of a PyTorch optimizer."""

from typing import Any

from energy_callbacks.tuning.snapshot.host_copy import keep


class OptimizerSnapshot:
    """An optimizer's state and groups of parameters, the parameters themselves aside.

    Args:
        optimizer: which may not have taken a step yet, and so has no state.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._state = {owner: keep(state) for owner, state in optimizer.state.items()}
        self._groups = [_Group(group) for group in optimizer.param_groups]

    def let_go(self) -> None:
        """Drop the state of parameters that had none."""
        state = self._optimizer.state
        for owner in [owner for owner in state if owner not in self._state]:
            del state[owner]

    def restore(self) -> None:
        """The same state for the same parameters."""
        self._optimizer.param_groups[:] = [group.restored() for group in self._groups]
        for owner, state in self._state.items():
            self._optimizer.state[owner] = state()


class _Group:
    def __init__(self, group: dict[str, Any]) -> None:
        self._group = group
        self._held, self._parameters = group["params"], list(group["params"])
        self._settings = {key: keep(value) for key, value in group.items() if key != "params"}

    def restored(self) -> dict[str, Any]:
        settings = {key: value() for key, value in self._settings.items()}
        self._held[:] = self._parameters
        self._group.clear()
        self._group.update(params=self._held, **settings)
        return self._group
