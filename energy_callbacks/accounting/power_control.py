"""The setting ``power_limit``: protocols, and the object for its value."""

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Protocol

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.accounting.journal_thread import PowerControlRun
from energy_callbacks.accounting.profilers import Profiler
from energy_callbacks.core.config import EnergyConfig


class PacedRun(PowerControlRun, Protocol):
    """A control of the power that may also slow down the training thread."""

    @property
    def pacer(self) -> Profiler | None:
        """What runs on the training thread after each step; ``None`` for nothing."""
        ...


class PowerControl(Protocol):
    """The setting ``power_limit``, such as ``PowerLimitOptimizer``."""

    def begin(self, attempt: ActiveAttempt) -> PacedRun:
        """Begin to control the power in an attempt; return at once.

        Args:
            attempt: the attempt; may be used until ``wait`` of the result returns ``True``.
        """
        ...


def power_control_from(config: EnergyConfig) -> PowerControl | None:
    """Return the setting ``power_limit`` as an object.

    The setting is an object, a mapping with the arguments of ``PowerLimitOptimizer``, or ``None``.

    Raises:
        ValueError: if an argument is unknown or invalid; the message names where the setting comes
            from.
    """
    control: PowerControl | None = config.power_limit
    if isinstance(control, Mapping):
        try:
            control = resolve_name("energy_callbacks.powercap:PowerLimitOptimizer")(**control)
        except (TypeError, ValueError) as error:
            raise config.blame(ValueError(str(error)), "power_limit") from error
    return control
