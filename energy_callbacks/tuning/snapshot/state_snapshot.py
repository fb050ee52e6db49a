"""Snapshots of objects with ``state_dict`` and ``load_state_dict``, such as schedulers."""

from typing import Any

from energy_callbacks.tuning.snapshot.host_copy import keep_copy


class StateSnapshot:
    """What an object's ``state_dict`` returned.

    Args:
        one: with ``state_dict`` and ``load_state_dict``.
    """

    def __init__(self, one: Any) -> None:
        self._one = one
        self._state = keep_copy(one.state_dict())

    def restore(self) -> None:
        """Load it again; the object gets a copy of its own."""
        self._one.load_state_dict(self._state())


class StagesSnapshot:
    """State that ``torch.amp.GradScaler`` leaves out: whose gradients it has unscaled.

    A step that fails between ``unscale_`` and ``update`` leaves that behind, and the next one
    would raise "unscale_() has already been called".

    Args:
        scaler: of gradients.
    """

    def __init__(self, scaler: Any) -> None:
        self._scaler = scaler
        self._stages = keep_copy(dict(self._held()))

    def restore(self) -> None:
        """As it was, most often: no optimizer's."""
        held = self._held()
        held.clear()
        held.update(self._stages())

    def _held(self) -> dict[int, dict[str, Any]]:
        held: dict[int, dict[str, Any]] = getattr(self._scaler, "_per_optimizer_states", {})
        return held
