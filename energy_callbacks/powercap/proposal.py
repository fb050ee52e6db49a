"""Says what would be done if changes were allowed; only reads."""

from collections.abc import Generator
from typing import TYPE_CHECKING

from energy_callbacks.core.errors import PowerCapError
from energy_callbacks.core.guard import logger
from energy_callbacks.powercap.leader import actuator_of
from energy_callbacks.powercap.settings import UNITS

if TYPE_CHECKING:
    from energy_callbacks.accounting.attempt import ActiveAttempt
    from energy_callbacks.core.records import Device
    from energy_callbacks.powercap.options import OptimizerOptions

CODE = "power_limit_not_changed"
_FIX = "pass PowerLimitOptimizer(..., allow_changes=True) to allow it"


def proposed(
    optimizer: "OptimizerOptions",
    attempt: "ActiveAttempt",
    found: "Generator[float, None, list[Device]]",
) -> Generator[float, None, None]:
    """Log once what would be done with the GPUs of this process, and what it could save.

    Args:
        optimizer: the settings.
        attempt: receives the message as a warning of the report.
        found: waits for the cards of this process, and returns them.
    """
    cards = yield from found
    message = f"No setting of a GPU was changed. {_plan(optimizer, cards)}"
    attempt.recorder.warn(CODE, message, _FIX)
    logger.warning("%s To allow it, %s.", message, _FIX)


def _plan(optimizer: "OptimizerOptions", cards: "list[Device]") -> str:
    if optimizer.knob == "duty":
        return "With consent, the training would sleep after each step to keep the cap."
    uuids = [card.uuid for card in cards if card.uuid]
    try:
        actuator = actuator_of(optimizer, uuids)
        settings = actuator.range(uuids[0], optimizer.knob)
    except PowerCapError as error:
        return f"It could not be changed either: {error}."
    unit = UNITS[optimizer.knob]
    present = "not locked" if settings.present is None else f"{settings.present:g} {unit}"
    return (
        f"With consent, values of {optimizer.knob} from {settings.lowest:g} to "
        f"{settings.highest:g} {unit} (now {present}) would be tried through {actuator.name} in a "
        f"few windows of the training ({optimizer}). The report estimates what a limit could save."
    )
