"""Changes the GPUs of one host; runs in the first rank of the host."""

from collections.abc import Generator
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from energy_callbacks.core.errors import ForeignChange, PowerCapError
from energy_callbacks.powercap.actuators.choose import choose
from energy_callbacks.powercap.safety.changed_cards import ChangedCards
from energy_callbacks.powercap.settings import KnobRange, Setting
from energy_callbacks.powercap.windows import POLL_S

if TYPE_CHECKING:
    from energy_callbacks.accounting.attempt import ActiveAttempt
    from energy_callbacks.powercap.actuators.protocol import Actuator
    from energy_callbacks.powercap.coordinator import Decision
    from energy_callbacks.powercap.exchange import Exchange
    from energy_callbacks.powercap.options import OptimizerOptions


class Leader(AbstractContextManager["Leader"]):
    """Changes all GPUs that the ranks of this host use, and restores them at the end of the block.

    An error is posted, so that rank 0 ends the search.

    Args:
        optimizer: the settings.
        attempt: the attempt of this process.
        exchange: records of all ranks.
    """

    def __init__(
        self,
        optimizer: "OptimizerOptions",
        attempt: "ActiveAttempt",
        exchange: "Exchange",
    ) -> None:
        self._optimizer = optimizer
        self._attempt = attempt
        self._exchange = exchange
        self._uuids: list[str] = []
        self._found: float | None = None
        self._highest: float | None = None
        self._actuator: Actuator | None = None
        self._cards: ChangedCards | None = None
        self._set_value: float | None = None
        self._has_changed = False

    def __exit__(self, *_: object) -> None:
        """Restore the settings that were found."""
        if self._cards is None:
            return
        cards, self._cards = self._cards, None
        problems = [one.message for one in cards.restore() if one.is_problem]
        for problem in problems:
            self._attempt.recorder.warn("power_limit", problem)
        if self._has_changed and not problems:
            self._attempt.recorder.event(
                "power_limit",
                self._attempt.now_s(),
                knob=self._optimizer.knob,
                value=self._found,
                why="restored",
                devices=self._uuids,
            )

    def join(self) -> Generator[float, None, None]:
        """Find the cards of this host and the settings that they accept, and post them."""
        host, process = self._attempt.host, self._attempt.process
        while True:
            ranks = self._exchange.read("rank-").values()
            here = [rank for rank in ranks if rank["host"] == host]
            if len(here) >= process.local_world_size:
                break
            yield POLL_S
        self._uuids = sorted({uuid for rank in here for uuid in rank["uuids"]})
        try:
            ranges = {uuid: asdict(one) for uuid, one in self._ranges().items()}
            highest_w = self._highest_w()
        except (PowerCapError, OSError) as error:
            self._post(0, error=str(error))
        else:
            self._post(0, ranges=ranges, highest_w=highest_w)

    def _ranges(self) -> dict[str, KnobRange]:
        actuator = self._actuator = actuator_of(self._optimizer, self._uuids)
        knob = self._optimizer.knob
        if knob != "duty":
            consent = self._optimizer.allow_changes
            self._cards = ChangedCards(actuator, self._uuids, allow_changes=consent).__enter__()
        ranges = {uuid: actuator.range(uuid, knob) for uuid in self._uuids}
        first = ranges[self._uuids[0]]
        self._found = self._set_value = first.present
        self._highest = first.highest
        return ranges

    def _highest_w(self) -> float:
        """Return the sum of the highest power limits, W; that of the device if it is unknown."""
        if self._optimizer.eta is None or self._actuator is None:
            return 0.0  # only the cost of Zeus needs it
        return sum(self._actuator.range(uuid, "limit").highest for uuid in self._uuids)

    def apply(self, decision: "Decision") -> None:
        """Set the value of a decision on all cards of this host."""
        try:
            self._set(decision.value)
        except (PowerCapError, OSError, ValueError) as error:
            self._post(decision.round, error=str(error))
        else:
            self._post(decision.round)

    def _set(self, value: float | None) -> None:
        if self._cards is None or self._actuator is None:
            return
        if self._found is None and not self._has_changed and value == self._highest:
            value = None  # clocks that are not locked are already at their highest value
        setting = Setting(knob=self._optimizer.knob, value=value)
        if value != self._set_value:
            self._has_changed = True
            self._cards.set(setting)
            self._set_value = value
            return
        for uuid in self._uuids:
            if not self._actuator.agrees(uuid, setting):
                raise ForeignChange(
                    f"{uuid}: another program has changed {setting}; its value is left as it is"
                )

    def _post(self, number: int, **record: Any) -> None:
        host = self._attempt.host
        self._exchange.post(f"node-{host}", {"round": number, "host": host, **record})


def actuator_of(optimizer: "OptimizerOptions", uuids: "list[str]") -> "Actuator":
    """Return the actuator that the user has passed, or the first one that can write.

    Raises:
        ActuatorError: if no actuator can write; the message lists what each of them needs.
    """
    wanted = optimizer.actuator
    if wanted is not None and not isinstance(wanted, str):
        return wanted
    return choose(uuids, optimizer.knob, names=None if wanted is None else [wanted])
