"""Passes a meter's events to its profilers; one that fails is stopped, and nothing else."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from energy_callbacks.core.guard import pass_on_signals
from energy_callbacks.core.records import Device, Energy
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.timeline import Timeline

logger = logging.getLogger("energy_callbacks")

Kind = Literal["kernels", "lines", "host", "step_phases"]
"""The kinds of profiles; the report has a section for each."""


class Measuring(Protocol):
    """The part of a meter that profilers may use between ``start`` and ``stop``."""

    @property
    def clock(self) -> Clock:
        """The meter's time."""
        ...

    @property
    def timeline(self) -> Timeline:
        """Everything that sensors have reported."""
        ...

    @property
    def run_folder(self) -> Path | None:
        """Where files of a profile go, in ``profile/``."""
        ...

    @property
    def devices(self) -> tuple[Device, ...]:
        """The measured devices."""
        ...

    @property
    def rank(self) -> int:
        """Number of this process among all."""
        ...

    def now_s(self) -> float:
        """The time, as by ``time.monotonic``."""
        ...

    def energy(self, start_s: float, end_s: float, scope: str = "total") -> Energy:
        """Energy between two moments."""
        ...

    def wait_until_seen(self, t_s: float, timeout_s: float) -> bool:
        """Wait until the sensors have reported up to a moment; only in ``stop``."""
        ...

    def record_profile(self, kind: Kind, record: Mapping[str, Any]) -> None:
        """Keep a profile for the report, as JSON of 200 kB at most."""
        ...


class Profiler(Protocol):
    """Told what happens, on the thread that trains; what it raises ends it with a warning."""

    def start(self, meter: Measuring) -> None:
        """An attempt has begun; after ``stop`` another may."""
        ...

    def mark(self, name: str, t_s: float) -> None:
        """``data_ready``, ``batch_done``, or ``phase:`` and the phase that begins."""
        ...

    def step(self, t_s: float) -> None:
        """The work of an optimizer step has just been queued."""
        ...

    def stop(self) -> None:
        """The training is over: end what is under way, and record what was found."""
        ...


class Profilers:
    """All profilers of a meter.

    Args:
        members: called in this order; stopped in reverse order.
    """

    def __init__(self, members: Sequence[Profiler]) -> None:
        for member in members:
            if missing := [name for name in _CALLS if not callable(getattr(member, name, None))]:
                raise TypeError(
                    f"a profiler has start, mark, step and stop: got {member!r} without "
                    f"{', '.join(missing)}; give objects such as KernelProfiler()"
                )
        self._members = tuple(members)
        self._running: list[Profiler] = []

    def __bool__(self) -> bool:
        """Whether any is running."""
        return bool(self._running)

    def __iter__(self) -> Iterator[Profiler]:
        """All of them, running or not."""
        return iter(self._members)

    def start(self, meter: Measuring) -> None:
        """See ``Profiler``."""
        self._running = list(self._members)
        self._tell(lambda member: member.start(meter))

    def mark(self, name: str, t_s: float) -> None:
        """See ``Profiler``."""
        self._tell(lambda member: member.mark(name, t_s))

    def step(self, t_s: float) -> None:
        """See ``Profiler``."""
        self._tell(lambda member: member.step(t_s))

    def stop(self) -> None:
        """See ``Profiler``."""
        ending, self._running = self._running[::-1], []
        self._tell(lambda member: member.stop(), ending)

    def _tell(
        self, call: Callable[[Profiler], None], members: Sequence[Profiler] | None = None
    ) -> None:
        for member in tuple(self._running if members is None else members):
            try:
                call(member)
            except Exception as error:
                pass_on_signals()
                logger.warning("%s ends here: %r", type(member).__name__, error, exc_info=True)
                if member in self._running:  # else it is ending already
                    self._running.remove(member)
                    self._tell(lambda one: one.stop(), (member,))


@dataclass(slots=True)
class _Offer:
    members: Sequence[Profiler]
    on_taken: Callable[[], None]
    holder: Profilers | None = None


_offers: list[_Offer] = []


def offer(members: Sequence[Profiler], on_taken: Callable[[], None]) -> None:
    """Profilers that whichever meter starts next in this process takes over.

    Of meters that run at the same time the first has them. A meter with a profiler of the same
    class keeps its own.

    Args:
        members: replace those of an earlier call.
        on_taken: called before a meter takes them; the meter that had them releases them.
    """
    _offers[:] = [_Offer(members, on_taken)] if members else []


def joined(own: Profilers) -> Profilers:
    """The profilers of a meter that starts, with those that are offered."""
    for one in _offers:
        if one.holder is None or not one.holder:
            one.on_taken()
            mine = tuple(own)
            kinds = {type(member) for member in mine}
            new = [member for member in one.members if type(member) not in kinds]
            own = one.holder = Profilers((*mine, *new))
    return own


_CALLS = ("start", "mark", "step", "stop")
