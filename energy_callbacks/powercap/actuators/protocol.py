"""Defines the protocol ``Actuator``: one way to read and change settings of GPUs."""

from dataclasses import dataclass
from typing import Final, Protocol

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.settings import Knob, KnobRange, Setting

# Limits that differ by less than this, W, are equal: drivers may round them to whole watts.
_SAME_LIMIT_W: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What an actuator can do on a card.

    Attributes:
        actuator: name of the actuator.
        knobs: the knobs of this card that the actuator can change, if it is permitted to.
        can_write: whether it is permitted to; ``None`` if only an attempt can tell.
        needs: what the actuator needs, and how to get it, as text for the user.
        found: what was found on this machine, as text for the user.
    """

    actuator: str
    knobs: tuple[Knob, ...]
    can_write: bool | None
    needs: str
    found: str


class Actuator(Protocol):
    """Reads and changes settings of GPUs, which are named by their UUIDs.

    Only ``write`` changes anything. In this package, it is called by
    ``powercap.safety.changed_cards`` only, which restores what was changed.
    """

    name: str
    """Name of the actuator, such as ``nvml``."""

    def probe(self, uuid: str) -> Probe:
        """Return what this actuator can do on a card.

        It only reads, and does not raise if a permission, a program or the card is missing.
        """
        ...

    def range(self, uuid: str, knob: Knob) -> KnobRange:
        """Return the accepted values of a knob.

        Raises:
            ActuatorError: if the card or the actuator does not support the knob, or the driver does
                not answer; the message has the reason.
        """
        ...

    def read(self, uuid: str, knob: Knob) -> float | None:
        """Return the present value of a knob; ``None`` if it is not known.

        Drivers of NVIDIA do not tell whether clocks are locked: ``None`` for clocks.

        Raises:
            ActuatorError: as ``range``.
        """
        return self.range(uuid, knob).present

    def agrees(self, uuid: str, setting: Setting) -> bool:
        """Return whether nothing that can be read contradicts a setting that was written earlier.

        Limits agree if they differ by less than 1 W. A locked clock is contradicted if the card
        runs at a higher clock; that clocks are not locked is never contradicted.

        Raises:
            ActuatorError: as ``range``.
        """
        present, value = self.read(uuid, setting.knob), setting.value
        if setting.knob != "limit" or present is None or value is None:
            return present == value
        return abs(present - value) < _SAME_LIMIT_W

    def write(self, uuid: str, setting: Setting) -> None:
        """Change a setting; a clock of ``None`` ends the lock of the clock.

        Raises:
            ValueError: if the card does not accept the value; nothing is written.
            ActuatorError: if the card does not have the knob, or the driver refuses the change or
                does not answer.
        """
        ...


def check_limit(actuator: Actuator, uuid: str, setting: Setting) -> None:
    """Raise ``ActuatorError`` if a limit that was written is not the present one."""
    if setting.knob == "limit" and not actuator.agrees(uuid, setting):
        raise ActuatorError(
            f"{uuid}: {actuator.name} reports success, but the power limit is "
            f"{actuator.read(uuid, 'limit'):g} W, not {setting.value:g} W"
        )
