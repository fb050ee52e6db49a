"""Logs what would be changed, and changes nothing."""

from dataclasses import replace
from typing import Final

from energy_callbacks.core.guard import logger
from energy_callbacks.powercap.actuators.nvml import NvmlActuator
from energy_callbacks.powercap.actuators.protocol import Actuator, Probe
from energy_callbacks.powercap.settings import Knob, KnobRange, Setting

_NEEDS: Final = "it needs nothing, and changes nothing"


class DryRun(Actuator):
    """Reads through another actuator, and logs instead of writing.

    Args:
        actuator: the actuator that would write; ``None`` for NVML.
    """

    name = "dry-run"

    def __init__(self, actuator: Actuator | None = None) -> None:
        self._actuator: Actuator = actuator or NvmlActuator()
        self._logged: dict[tuple[str, Knob], Setting] = {}

    def probe(self, uuid: str) -> Probe:
        """See ``Actuator``."""
        probe = self._actuator.probe(uuid)
        return replace(
            probe,
            actuator=self.name,
            can_write=bool(probe.knobs),
            needs=_NEEDS,
            found=f"{probe.actuator}: {probe.found}",
        )

    def range(self, uuid: str, knob: Knob) -> KnobRange:
        """See ``Actuator``."""
        return self._actuator.range(uuid, knob)

    def read(self, uuid: str, knob: Knob) -> float | None:
        """Return the value that was logged last, or the present value of the card."""
        logged = self._logged.get((uuid, knob))
        return logged.value if logged else self._actuator.read(uuid, knob)

    def agrees(self, uuid: str, setting: Setting) -> bool:
        """See ``Actuator``."""
        logged = self._logged.get((uuid, setting.knob))
        return logged == setting if logged else self._actuator.agrees(uuid, setting)

    def write(self, uuid: str, setting: Setting) -> None:
        """Check the value, and log what would be written."""
        self._actuator.range(uuid, setting.knob).check(setting.value)
        self._logged[(uuid, setting.knob)] = setting
        logger.info("dry run: would set %s on %s", setting, uuid)
