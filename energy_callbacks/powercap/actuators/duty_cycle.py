"""Lowers mean power without a permission: the training sleeps a share of the time.

The mean power falls, but not the power of a step, and the training becomes slower by the share of
the sleep. It saves no energy: it keeps the mean power of at least one step below a cap.
"""

from typing import Final

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators.protocol import Probe
from energy_callbacks.powercap.settings import Knob, KnobRange, Setting

# Below this share, a training takes more than ten times as long.
_LOWEST: Final = 0.1
_NEEDS: Final = (
    "it needs no permission; it waits for the GPU after each step and then sleeps, "
    "for the same time on all ranks"
)


class DutyCycle:
    """Stores the share of time in which the GPU works.

    Nothing on the card is changed. After each step, the training thread waits for the GPU and then
    sleeps for ``sleep_s``.
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

    def read(self, uuid: str, knob: Knob) -> float | None:
        """See ``Actuator``."""
        return self.range(uuid, knob).present

    def agrees(self, uuid: str, setting: Setting) -> bool:
        """See ``Actuator``."""
        return self.read(uuid, setting.knob) == setting.value

    def write(self, uuid: str, setting: Setting) -> None:
        """See ``Actuator``."""
        self.range(uuid, setting.knob).check(setting.value)
        self._shares[uuid] = setting.value or 1.0


def sleep_s(busy_s: float, share: float) -> float:
    """Return how long to sleep after a step, s, so that the GPU works a share of the time.

    Args:
        busy_s: duration of the step until the GPU has finished it, s.
        share: share of the time in which the GPU works.

    >>> round(sleep_s(0.2, 0.8), 6)
    0.05
    """
    return busy_s * (1.0 / share - 1.0)
