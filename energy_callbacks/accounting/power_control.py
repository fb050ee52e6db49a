"""Protocols of an object that changes power limits or clocks of GPUs during an attempt."""

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from energy_callbacks.accounting.attempt import ActiveAttempt
    from energy_callbacks.accounting.profilers import Profiler


class PowerControlRun(Protocol):
    """Controls the power during one attempt, on a thread of its own."""

    @property
    def pacer(self) -> "Profiler | None":
        """What must run on the training thread after each step; ``None`` for nothing."""
        ...

    def ask_to_stop(self) -> None:
        """Restore what was changed, on its own thread; do not wait."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Wait until everything is restored, and return whether it is."""
        ...


class PowerControl(Protocol):
    """The setting ``power_limit``, such as ``PowerLimitOptimizer``."""

    def begin(self, attempt: "ActiveAttempt") -> PowerControlRun:
        """Begin to control the power in an attempt; return at once.

        Args:
            attempt: the attempt; may be used until ``wait`` returns ``True``.
        """
        ...


def power_control_from(value: Any) -> PowerControl | None:
    """Return the setting ``power_limit`` as an object.

    Args:
        value: an object, a mapping with the arguments of ``PowerLimitOptimizer``, or ``None``.

    Raises:
        ValueError: if an argument is invalid.
        TypeError: if an argument is unknown or has the wrong type.
    """
    if not isinstance(value, Mapping):
        control: PowerControl | None = value
        return control
    return resolve_name("energy_callbacks.powercap:PowerLimitOptimizer")(**value)  # type: ignore[no-any-return]
