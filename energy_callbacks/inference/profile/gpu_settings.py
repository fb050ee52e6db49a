"""Sets the clocks and the power limit of a configuration, and restores what was found."""

from contextlib import AbstractContextManager
from typing import Final, Self

from energy_callbacks.inference.records import Configuration, needed
from energy_callbacks.powercap.actuators.protocol import Actuator
from energy_callbacks.powercap.safety.changed_cards import ChangedCards
from energy_callbacks.powercap.settings import Knob, Setting


class GpuSettings(AbstractContextManager["GpuSettings"]):
    """The settings of one GPU, which are those found again after the context.

    Args:
        actuator: changes the settings.
        uuid: UUID of the GPU.
        allow_changes: the consent of the user.

    Raises:
        ConsentError: without consent.
    """

    def __init__(self, actuator: Actuator, uuid: str, *, allow_changes: bool) -> None:
        self._cards: Final = ChangedCards(actuator, [uuid], allow_changes=allow_changes)
        self._actuator, self._uuid = actuator, uuid
        self._found: dict[Knob, float | None] = {}
        self._present: dict[Knob, float | None] = {}

    def __enter__(self) -> Self:
        self._cards.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._cards.__exit__()

    def apply(self, configuration: Configuration) -> None:
        """Set what the configuration needs; all other knobs have the values found.

        Raises:
            ValueError: if the GPU does not accept a value.
            PowerCapError: if a setting cannot be changed.
        """
        wanted = needed(configuration)
        for knob in wanted:
            if knob not in self._found:
                self._found[knob] = self._actuator.read(self._uuid, knob)
        values: dict[Knob, float | None] = {**self._found, **wanted}
        for knob, value in values.items():
            if self._present.get(knob, self._found[knob]) != value:
                self._cards.set(Setting(knob=knob, value=value))
                self._present[knob] = value
