"""Lowers mean power without a permission: the training sleeps a share of the time.

The mean power falls, but not the power of a step, and the training becomes slower by the share of
the sleep. It saves no energy: it keeps the mean power of at least one step below a cap.
"""

from typing import Final

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators.protocol import Actuator, Probe
from energy_callbacks.powercap.settings import Knob, KnobRange, Setting

# Below this share, a training takes more than ten times as long.
_LOWEST: Final = 0.1
_NEEDS: Final = (
    "it needs no permission; it waits for the GPU after each step and then sleeps, "
    "for the same time on all ranks"
)


class DutyCycle(Actuator):
    """Stores the share of time in which the GPU works.

    Nothing on the card is changed. After each step, the training thread waits for the GPU and then
    sleeps (``powercap/pacer.py``).
    """

    name = "duty-cycle"

    def __init__(self) -> None:
        self._shares: dict[str, float] = {}

    def probe(self, uuid: str) -> Probe:  # noqa: ARG002 - the same for all cards
        """See ``Actuator``."""
        return Probe(
            actuator=self.name,
            knobs=("duty",),
            can_write=True,
            needs=_NEEDS,
            found="available for every training loop",
        )

    def range(self, uuid: str, knob: Knob) -> KnobRange:
        """See ``Actuator``."""
        if knob != "duty":
            raise ActuatorError(f"{self.name} cannot change {knob!r}", "it has 'duty' only")
        present = self._shares.get(uuid, 1.0)
        return KnobRange(knob="duty", lowest=_LOWEST, highest=1.0, present=present, default=1.0)

    def write(self, uuid: str, setting: Setting) -> None:
        """See ``Actuator``."""
        self.range(uuid, setting.knob).check(setting.value)
        self._shares[uuid] = setting.value or 1.0
