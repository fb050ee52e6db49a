"""Advice instead of a change: another batch size is the only knob that always needs a person."""

from typing import Final

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators.protocol import Actuator, Probe
from energy_callbacks.powercap.settings import Knob, KnobRange, Setting

# On the training workloads of Zeus's traces (4 GPUs, 19 groups), the batch size with the lowest
# power draws 9 % less than the one with the highest, at the median.
_ADVICE: Final = (
    "search for the batch size with the least energy per sample: 'energy-callbacks tune'. The "
    "batch size usually changes the power of a training by less than 10 %"
)


class BatchAdvice(Actuator):
    """Changes nothing, because another batch size changes what the training learns."""

    name = "batch-advice"

    def probe(self, uuid: str) -> Probe:  # noqa: ARG002 - the same for all cards
        """See ``Actuator``."""
        return Probe(
            actuator=self.name,
            knobs=(),
            can_write=False,
            needs="it needs a person who changes the batch size",
            found=_ADVICE,
        )

    def range(self, uuid: str, knob: Knob) -> KnobRange:  # noqa: ARG002 - as the protocol
        """See ``Actuator``."""
        raise ActuatorError(f"{self.name} cannot change {knob!r}", _ADVICE)

    def write(self, uuid: str, setting: Setting) -> None:
        """See ``Actuator``."""
        self.range(uuid, setting.knob)
