"""Restores the settings that a state file describes, if no other program has changed them since."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Literal, cast

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators.protocol import Actuator
from energy_callbacks.powercap.safety.state_file import Change, ChangedCard, StateFile, boot_id
from energy_callbacks.powercap.settings import Knob, Setting

Outcome = Literal["restored", "unchanged", "foreign", "failed", "restarted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What became of one changed setting.

    Attributes:
        uuid: UUID of the GPU.
        setting: the setting that was found before the first change.
        outcome: ``restored``: it was written; ``unchanged``: the GPU had it already; ``foreign``:
            another program has changed the setting since, so it was left as it is; ``failed``: the
            driver refused it or did not answer, so the state file stays; ``restarted``: the machine
            has started anew since the change, which resets the GPU.
        message: the outcome as text for the user.
    """

    uuid: str
    setting: Setting
    outcome: Outcome
    message: str

    @property
    def is_problem(self) -> bool:
        """Whether the GPU may not have the setting that was found."""
        return self.outcome in ("foreign", "failed")


def name_of(actuator: Actuator) -> str:
    """Return module and class of an actuator, for ``actuator_named``."""
    kind = type(actuator)
    return f"{kind.__module__}:{kind.__qualname__}"


def actuator_named(name: str) -> Actuator:
    """Return an actuator; see ``name_of``.

    Raises:
        ActuatorError: if this version of the package has no such actuator.
    """
    module, _, kind = name.partition(":")
    try:
        return cast("Actuator", getattr(import_module(module), kind)())
    except (ImportError, AttributeError, ValueError) as error:
        raise ActuatorError(
            f"the actuator {name} is not available ({error})",
            "restore the setting with the version of energy_callbacks that changed it",
        ) from error


def is_ours(actuator: Actuator, uuid: str, change: Change) -> bool:
    """Return whether a GPU still has a value that this package wrote, as far as it can be read.

    Raises:
        ActuatorError: if the driver does not answer.
    """
    settings = (Setting(knob=change.knob, value=value) for value in change.ours)
    return any(actuator.agrees(uuid, one) for one in settings)


def foreign(uuid: str, knob: Knob, present: float | None, change: Change) -> str:
    """Return a text that says which value another program has set."""
    now = "the clock" if present is None else Setting(knob=knob, value=present)
    last = Setting(knob=knob, value=change.ours[-1])
    return f"{uuid}: {now} was set by another program after {last} of energy_callbacks"


def restore_card(file: StateFile, actuator: Actuator | None = None) -> Sequence[Restored]:
    """Restore the settings of one GPU, and remove its state file.

    The file stays if a setting could not be restored. The caller holds the lock of the GPU.

    Args:
        file: the state file.
        actuator: the actuator to use; ``None`` for the one that the file names.

    Returns:
        One record per changed setting; nothing if there is no state file.

    Raises:
        PowerCapError: if the file cannot be read.
    """
    card = file.read()
    if card is None:
        return ()
    if card.boot_id != boot_id():
        file.remove()
        return tuple(
            Restored(
                uuid=card.uuid,
                setting=Setting(knob=change.knob, value=change.found),
                outcome="restarted",
                message=f"{card.uuid}: the machine has been restarted since the {change.knob} was "
                "changed, which resets the GPU; nothing was written",
            )
            for change in card.changes
        )
    done = tuple(_restore(card, change, file, actuator) for change in card.changes)
    failed = {one.setting.knob for one in done if one.outcome == "failed"}
    if failed:
        left = tuple(change for change in card.changes if change.knob in failed)
        file.write(replace(card, changes=left))
    else:
        file.remove()
    return done


def _restore(
    card: ChangedCard, change: Change, file: StateFile, actuator: Actuator | None
) -> Restored:
    found = Setting(knob=change.knob, value=change.found)
    last = Setting(knob=change.knob, value=change.ours[-1])
    outcome: Outcome
    try:
        actuator = actuator or actuator_named(card.actuator)
        present = actuator.read(card.uuid, change.knob)
        if present is not None and present == change.found:
            outcome, message = "unchanged", f"{card.uuid}: {found}, as it was found"
        elif not is_ours(actuator, card.uuid, change):
            outcome, message = "foreign", foreign(card.uuid, change.knob, present, change)
            message += f", and is left as it is; before, the GPU had {found}"
        else:
            actuator.write(card.uuid, found)
            outcome, message = "restored", f"{card.uuid}: {found} restored, after {last}"
    except (ActuatorError, ValueError) as error:
        outcome = "failed"
        message = (
            f"{card.uuid}: {found} could not be restored, after {last}: {error}. {file.path} still "
            "has the value; try again with: energy-callbacks powercap restore"
        )
    return Restored(uuid=card.uuid, setting=found, outcome=outcome, message=message)
