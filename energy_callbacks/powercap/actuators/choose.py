"""Chooses the actuator for a knob of some cards: the first one that is permitted to change it."""

from collections.abc import Callable, Sequence
from typing import Final

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators.batch_advice import BatchAdvice
from energy_callbacks.powercap.actuators.dry_run import DryRun
from energy_callbacks.powercap.actuators.duty_cycle import DutyCycle
from energy_callbacks.powercap.actuators.hwmon import HwmonActuator
from energy_callbacks.powercap.actuators.nvidia_smi import NvidiaSmiActuator
from energy_callbacks.powercap.actuators.nvml import NvmlActuator
from energy_callbacks.powercap.actuators.protocol import Actuator, Probe
from energy_callbacks.powercap.actuators.zeusd import ZeusdActuator
from energy_callbacks.powercap.settings import Knob

# In the order in which they are tried. Dry runs and advice are chosen only by their names.
_MADE_BY: Final[dict[str, Callable[[], Actuator]]] = {
    "nvml": NvmlActuator,
    "zeusd": ZeusdActuator,
    "nvidia-smi": NvidiaSmiActuator,
    "hwmon": HwmonActuator,
    "duty-cycle": DutyCycle,
    "batch-advice": BatchAdvice,
    "dry-run": DryRun,
}
NAMES: Final = tuple(_MADE_BY)
_CHOSEN: Final = ("nvml", "zeusd", "nvidia-smi", "hwmon", "duty-cycle")


def actuator(name: str) -> Actuator:
    """Return a new actuator.

    Raises:
        ValueError: if there is no actuator of this name.
    """
    if name not in _MADE_BY:
        raise ValueError(f"no actuator {name!r}; choose from {', '.join(NAMES)}")
    return _MADE_BY[name]()


def choose(uuids: Sequence[str], knob: Knob, *, names: Sequence[str] | None = None) -> Actuator:
    """Return the first actuator that can change a knob of all cards; nothing is written.

    An actuator that is known to be permitted precedes one of which only an attempt can tell.

    Args:
        uuids: UUIDs of the cards.
        knob: the knob to change.
        names: names of the actuators to try, in this order; ``None`` for all but dry run and
            advice.

    Raises:
        ActuatorError: if no actuator can; the message lists what each was found to lack.
        ValueError: if a name is unknown.
    """
    if not uuids:
        raise ActuatorError("no GPU whose settings could be changed")
    perhaps: Actuator | None = None
    refused: list[str] = []
    for one in map(actuator, _CHOSEN if names is None else names):
        found = [one.probe(uuid) for uuid in uuids]
        lacking = next((probe for probe in found if not _is_able(probe, knob)), None)
        if lacking is not None:
            refused += [f"- {_reason(lacking, knob)}"]
        elif all(probe.can_write for probe in found):
            return one
        else:
            perhaps = perhaps or one
    if perhaps is None:
        raise ActuatorError("\n".join((f"no actuator can change {knob!r}:", *refused)))
    return perhaps


def _is_able(probe: Probe, knob: Knob) -> bool:
    return knob in probe.knobs and probe.can_write is not False


def _reason(probe: Probe, knob: Knob) -> str:
    if probe.knobs and knob not in probe.knobs:
        return f"{probe.actuator}: it changes only {', '.join(probe.knobs)}"
    return f"{probe.actuator}: {probe.found}; {probe.needs}"
