"""Runs the optimizer in one attempt, on a separate thread.

Every rank measures windows. The first rank of a host, its leader, changes the GPUs that the ranks
of the host use. Rank 0 decides (``coordinator.py``). The training thread is never used, except by
the knob ``duty``.
"""

import contextlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from energy_callbacks.core.errors import PowerCapError
from energy_callbacks.core.guard import logger
from energy_callbacks.powercap.coordinator import (
    Coordinator,
    Decision,
    Why,
    decision_after,
    post_end,
)
from energy_callbacks.powercap.exchange import Exchange, FolderExchange, MemoryExchange
from energy_callbacks.powercap.leader import Leader
from energy_callbacks.powercap.objective import ObjectiveOverTime
from energy_callbacks.powercap.pacer import Pacer
from energy_callbacks.powercap.proposal import proposed
from energy_callbacks.powercap.results import Results
from energy_callbacks.powercap.settings import Setting
from energy_callbacks.powercap.windows import POLL_S, WindowPlan, measured, planned, warmed_up

if TYPE_CHECKING:
    from energy_callbacks.accounting.attempt import ActiveAttempt
    from energy_callbacks.core.records import Device
    from energy_callbacks.powercap.options import OptimizerOptions

_FOLDER: Final = "power_limit"
Script = Generator[float, None, None]


class PowerLimitRun:
    """The optimizer of one attempt.

    Args:
        optimizer: the settings.
        attempt: provides the steps, the energies and the clock.

    Attributes:
        pacer: makes the training thread sleep, for the knob ``duty``; otherwise ``None``.
    """

    def __init__(self, optimizer: "OptimizerOptions", attempt: "ActiveAttempt") -> None:
        # Actuators need it, and the thread of the search must not import modules.
        with contextlib.suppress(ImportError):
            import pynvml  # noqa: F401
        self._optimizer = optimizer
        self._attempt = attempt
        self._process = attempt.process
        uses_duty = optimizer.knob == "duty" and optimizer.allow_changes
        self.pacer = Pacer(attempt.clock) if uses_duty else None
        self._is_stopping = False
        self._noted: tuple[Setting, Why] | None = None
        self._exchange: Exchange = MemoryExchange()
        if self._process.world_size > 1:
            self._exchange = FolderExchange(attempt.folder / _FOLDER)
        self._scripts: list[Script] = list(self._new_scripts())
        self._job = attempt.clock.every(POLL_S, self._advance, name="energy_callbacks power limit")

    def ask_to_stop(self) -> None:
        """Restore what was changed, on the thread of this object; do not wait."""
        self._is_stopping = True
        self._job.ask_to_stop()

    def wait(self, timeout_s: float) -> bool:
        """Wait until everything is restored, and return whether it is."""
        return self._job.wait(timeout_s)

    def _new_scripts(self) -> Iterator[Script]:
        if not self._optimizer.allow_changes:
            if self._process.rank == 0:
                yield proposed(self._optimizer, self._attempt, self._cards())
            return
        yield self._member()
        if self._process.rank == 0:
            yield self._coordinate()

    def _coordinate(self) -> Script:
        yield from Coordinator(
            exchange=self._exchange,
            world_size=self._process.world_size,
            objective=ObjectiveOverTime(self._optimizer, self._attempt.clock),
            results=Results(self._optimizer, self._attempt),
        ).script()

    def _advance(self) -> float:
        """Continue all scripts; runs on the thread of this object."""
        try:
            if self._is_stopping:
                self._close()
            waits_s = [next(script, None) for script in self._scripts]
        except Exception as error:
            self._close()
            problem = f"{type(error).__name__}: {error}"
            self._warn(problem)
            logger.debug("power limit", exc_info=True)
            self._scripts = [self._report(problem)]
            return POLL_S
        return min((wait_s for wait_s in waits_s if wait_s is not None), default=1.0)

    def _close(self) -> None:
        """End all scripts, which restore what they have changed."""
        scripts, self._scripts = self._scripts, []
        for script in scripts:
            with contextlib.suppress(PowerCapError):
                script.close()

    def _report(self, problem: str) -> Script:
        """Tell the other ranks that the search has ended; try again until that succeeds."""
        while True:
            with contextlib.suppress(OSError):
                if self._process.rank == 0:
                    post_end(self._exchange, f"{self._attempt.host}: {problem}")
                else:  # rank 0 then ends the search
                    self._post(round=0, uuids=[], error=problem)
                return
            yield POLL_S

    def _warn(self, problem: str) -> None:
        message = f"The search for a power limit has ended: {problem}"
        self._attempt.recorder.warn("power_limit", message)
        if self._process.rank == 0:
            logger.warning("%s", message)

    def _cards(self) -> "Generator[float, None, list[Device]]":
        """Wait for the GPUs of this process, and return them."""
        while True:
            cards = [one for one in self._attempt.devices if one.kind == "gpu" and one.uuid]
            if cards:
                return cards
            yield POLL_S

    def _member(self) -> Script:
        """What every rank does: follow the decisions of rank 0, and restore at the end."""
        try:
            cards = yield from self._cards()
            self._post(round=0, uuids=[card.uuid for card in cards])
            if self._process.local_rank:
                yield from self._follow(cards, None)
                return
            with Leader(self._optimizer, self._attempt, self._exchange) as leader:
                yield from leader.join()
                yield from self._follow(cards, leader)
        finally:
            if self.pacer is not None:
                self.pacer.duty = 1.0

    def _follow(self, cards: "Sequence[Device]", leader: Leader | None) -> Script:
        number = 0
        yield from warmed_up(self._attempt, self._plan(cards))
        while True:
            while (decision := decision_after(self._exchange, number)) is None:
                yield POLL_S
            number = decision.round
            if decision.why == "end":
                self._warn(decision.message)
                return
            if leader is not None:
                leader.apply(decision)
            elif not (yield from self._applied(number)):
                continue
            self._note(decision, cards)
            window = yield from measured(self._attempt, cards, self._plan(cards, decision.least_s))
            self._post(round=number, window=asdict(window), uuids=list(window.energy_j))

    def _plan(self, cards: "Sequence[Device]", least_s: float = 0.0) -> WindowPlan:
        plan = planned(self._attempt, cards, self._optimizer.window_steps)
        return replace(plan, duration_s=max(least_s, self._optimizer.window_s or plan.duration_s))

    def _note(self, decision: Decision, cards: "Sequence[Device]") -> None:
        """Write the setting of the cards of this process to the journal."""
        setting = Setting(knob=self._optimizer.knob, value=decision.value)
        if self.pacer is not None:
            self.pacer.duty = decision.value or 1.0
        if self._noted == (setting, decision.why):
            return
        self._noted = (setting, decision.why)
        self._attempt.recorder.event(
            "power_limit",
            self._attempt.now_s(),
            knob=setting.knob,
            value=setting.value,
            why=decision.why,
            devices=[card.uuid for card in cards],
        )

    def _post(self, **record: Any) -> None:
        self._exchange.post(f"rank-{self._process.rank}", {"host": self._attempt.host, **record})

    def _applied(self, number: int) -> Generator[float, None, bool]:
        """Wait until the leader of this host has set the value of a round.

        Return ``False`` if the search has ended before.
        """
        name = f"node-{self._attempt.host}"
        while self._exchange.read(name).get(name, {}).get("round", 0) < number:
            newest = decision_after(self._exchange, number)
            if newest is not None and newest.why == "end":
                return False
            yield POLL_S
        return True
