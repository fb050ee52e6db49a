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
    """Computes how long a training sleeps after each step.

    Nothing on the card is changed. The training thread sleeps, after it has waited for the GPU.
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
        accepted = self.range(uuid, setting.knob)
        if setting.value is None:
            raise ValueError("a duty cycle needs a value between 0.1 and 1, got None")
        accepted.check(setting.value)
        self._shares[uuid] = setting.value

    def sleep_s(self, busy_s: float) -> float:
        """Return how long to sleep after a step, s; the lowest share of all cards counts.

        Args:
            busy_s: the duration of the step until the GPU has finished it, s.
        """
        share = min(self._shares.values(), default=1.0)
        return busy_s * (1.0 / share - 1.0)


def share_for_cap(cap_w: float, busy_w: float, idle_w: float) -> float:
    """Return the share of time in which a card may work so that its mean power is ``cap_w``.

    The power is ``busy_w`` during a step and ``idle_w`` during a sleep, so that
    ``cap_w = share * busy_w + (1 - share) * idle_w``. The result is between 0.1 and 1.

    >>> share_for_cap(cap_w=300.0, busy_w=400.0, idle_w=100.0)
    0.6666666666666666
    """
    if busy_w <= idle_w:
        return 1.0
    return min(max((cap_w - idle_w) / (busy_w - idle_w), _LOWEST), 1.0)
