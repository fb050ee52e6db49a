"""Decides the settings of all GPUs of a run; runs in rank 0.

::

    search    a window at each setting that the search asks for
    chosen    windows at the best setting, longer each time, until time or power of a step drifts
    end       another program changed a setting, a driver refused, a rank has no readings, or an
              error in this package

Each decision is a record of the exchange with a number, its round. The next decision follows when
all ranks have reported a window of that round.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from energy_callbacks.core.errors import ActuatorError, PowerCapError
from energy_callbacks.powercap.objective import Cards, ObjectiveOverTime
from energy_callbacks.powercap.search.drift import has_drifted
from energy_callbacks.powercap.search.trial import Trial
from energy_callbacks.powercap.settings import KnobRange
from energy_callbacks.powercap.windows import POLL_S

if TYPE_CHECKING:
    from energy_callbacks.powercap.exchange import Exchange, Record
    from energy_callbacks.powercap.results import Results
    from energy_callbacks.powercap.search.search import PowerSearch

Why = Literal["search", "chosen", "end"]
# Windows at the chosen setting become longer, up to this, s: a drift is found within minutes, and
# the files of the exchange are written rarely.
_LONGEST_S: Final = 60.0
# Number of windows without readings of the energy after which the search ends.
_MOST_BLIND: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What all ranks do next.

    Attributes:
        round: number of the decision, from 1; 0 for the end.
        value: the setting; ``None`` at the end.
        why: part of the procedure.
        least_s: minimum duration of the window, s; 0 for the duration that the sensors need.
        message: why the procedure ends; empty otherwise.
    """

    round: int
    value: float | None
    why: Why
    least_s: float = 0.0
    message: str = ""


def decision_after(exchange: "Exchange", number: int) -> Decision | None:
    """Return the newest decision if it is the end or its round is later than ``number``.

    Otherwise, return ``None``.
    """
    found = exchange.read("decision").get("decision")
    if found is None or (found["why"] != "end" and found["round"] <= number):
        return None
    return Decision(**found)


def post_end(exchange: "Exchange", message: str) -> None:
    """End the search on all ranks; ``message`` says why."""
    exchange.post("decision", asdict(Decision(round=0, value=None, why="end", message=message)))


@dataclass(slots=True)
class Coordinator:
    """Decides the settings; see the module.

    Attributes:
        exchange: records of all ranks.
        world_size: number of ranks.
        objective: creates searches; if it changes, the search begins again.
        results: writes the newest answer and all windows.
        trials: windows so far since the last change of the training.
    """

    exchange: "Exchange"
    world_size: int
    objective: ObjectiveOverTime
    results: "Results"
    trials: list[Trial] = field(default_factory=list)
    _round: int = 0

    def script(self) -> Generator[float, None, None]:
        """Run the procedure; yield the time until it must be called again, s."""
        try:
            yield from self._run()
        except PowerCapError as error:
            post_end(self.exchange, str(error))

    def _run(self) -> Generator[float, None, None]:
        nodes = yield from self._joined()
        cards = cards_of(nodes)
        search = self.objective.search(cards)
        while True:
            yield from self._search(search, cards.found)
            changed = yield from self._hold(search)
            if not changed:  # the objective is another one; the windows remain valid
                search = self.objective.search(cards)
                for trial in self.trials:
                    search.add(trial)

    def _search(self, search: "PowerSearch", found: float) -> Generator[float, None, None]:
        while (value := search.next_value()) is not None:
            yield from self._try(search, value)
        if all(trial.value != found for trial in self.trials):
            # After a drift, the search needs no window at the setting found, but the saving does.
            yield from self._try(search, found)

    def _try(self, search: "PowerSearch", value: float) -> Generator[float, None, None]:
        trial = yield from self._window(value, "search")
        self.trials.append(trial)
        search.add(trial)

    def _hold(self, search: "PowerSearch") -> Generator[float, None, bool]:
        """Keep the chosen setting; return ``True`` after a drift, ``False`` for a new objective."""
        answer = search.answer()
        self.results.record(answer, self.trials)
        first: Trial | None = None
        least_s = 0.0
        while not self.objective.has_changed():
            trial = yield from self._window(answer.chosen, "chosen", least_s)
            least_s = min(max(2.0 * least_s, 5.0), _LONGEST_S)
            if first is not None and has_drifted(first, trial):
                self.trials = [trial]
                search.reopen(trial)
                return True
            first = first or trial
            self.trials.append(trial)
            self.results.record(answer, self.trials)
        return False

    def _joined(self) -> Generator[float, None, list["Record"]]:
        """Wait until all ranks and the leaders of all hosts have reported; return the leaders."""
        while len(ranks := self.exchange.read("rank-")) < self.world_size:
            self._check(ranks)
            yield POLL_S
        hosts = {rank["host"] for rank in ranks.values()}
        while len(nodes := self.exchange.read("node-")) < len(hosts):
            self._check(ranks)
            yield POLL_S
            ranks = self.exchange.read("rank-")
        self._check(nodes)
        return list(nodes.values())

    def _window(
        self, value: float, why: Why, least_s: float = 0.0
    ) -> Generator[float, None, Trial]:
        for _ in range(_MOST_BLIND):
            self._decide(value, why, least_s)
            ranks = yield from self._windows()
            trial = reduced(value, [rank["window"] for rank in ranks])
            if trial is not None:
                return trial
        raise ActuatorError("the energy of a GPU has no readings, so that no limit can be chosen")

    def _windows(self) -> Generator[float, None, list["Record"]]:
        while True:
            ranks = self.exchange.read("rank-")
            done = [one for one in ranks.values() if one["round"] == self._round]
            if len(done) >= self.world_size:
                return done
            self._check(self.exchange.read("node-"))
            self._check(ranks)
            yield POLL_S

    def _check(self, records: Mapping[str, "Record"]) -> None:
        for record in records.values():
            if record.get("error"):
                raise ActuatorError(f"{record['host']}: {record['error']}")

    def _decide(self, value: float, why: Why, least_s: float) -> None:
        self._round += 1
        decision = Decision(round=self._round, value=value, why=why, least_s=least_s)
        self.exchange.post("decision", asdict(decision))


def cards_of(nodes: Sequence["Record"]) -> Cards:
    """Return the settings that all cards of the run accept, and the setting found.

    Args:
        nodes: the records of the leaders.

    Raises:
        ActuatorError: if the cards have different settings, or no setting in common.
    """
    ranges = [KnobRange(**one) for node in nodes for one in node["ranges"].values()]
    presents = {one.present for one in ranges}
    if len(presents) > 1:
        values = ", ".join(f"{value:g}" for value in sorted(v for v in presents if v is not None))
        raise ActuatorError(
            f"the GPUs of this run have different values of {ranges[0].knob} ({values})",
            "set the same value on all of them",
        )
    lowest, highest = max(one.lowest for one in ranges), min(one.highest for one in ranges)
    steps = set(ranges[0].steps).intersection(*(one.steps for one in ranges))
    if lowest > highest or (ranges[0].steps and not steps):
        raise ActuatorError(f"the GPUs of this run have no value of {ranges[0].knob} in common")
    found = ranges[0].present
    return Cards(
        settings=replace(ranges[0], lowest=lowest, highest=highest, steps=tuple(sorted(steps))),
        found=highest if found is None else found,
        count=len(ranges),
        highest_w=math.fsum(node["highest_w"] for node in nodes),
    )


def reduced(value: float, windows: Sequence[Mapping[str, Any]]) -> Trial | None:
    """Combine the windows of all ranks: the longest time, and the sum of energies of all cards.

    Two ranks that use the same card both measure its energy, which counts once.

    Returns:
        The trial; ``None`` if an energy is not known.
    """
    slowest = max(windows, key=lambda one: one["duration_s"] / one["steps"])
    step_j: dict[str, float] = {}
    stderr_j: dict[str, float] = {}
    for window in windows:
        for uuid, energy_j in window["energy_j"].items():
            step_j[uuid] = math.nan if energy_j is None else energy_j / window["steps"]
            stderr_j[uuid] = window["energy_stderr_j"][uuid] / window["steps"]
    whole_j = math.fsum(step_j.values())
    if not whole_j > 0.0:
        return None
    return Trial(
        value=value,
        step_s=slowest["duration_s"] / slowest["steps"],
        step_j=whole_j,
        step_s_stderr=slowest["step_s_stderr"],
        step_j_stderr=math.hypot(*stderr_j.values()),
    )
