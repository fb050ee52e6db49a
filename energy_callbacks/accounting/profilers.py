"""Passes the events of a meter to its profilers; one that fails is stopped, and nothing else."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Protocol

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.core.guard import pass_on_signals

logger = logging.getLogger("energy_callbacks")


class Profiler(Protocol):
    """Receives events on the training thread; an exception ends the profiler with a warning."""

    def start(self, meter: ActiveAttempt) -> None:
        """An attempt has begun; after ``stop`` another one may begin.

        Args:
            meter: measures the attempt; may be used until ``stop`` returns.
        """
        ...

    def mark(self, name: str, t_s: float) -> None:
        """``data_ready``, ``batch_done``, or ``phase:`` with the name of the phase that begins."""
        ...

    def step(self, t_s: float) -> None:
        """The work of an optimizer step has just been queued."""
        ...

    def stop(self) -> None:
        """The training has ended: finish what is running and record the results."""
        ...


_METHODS = ("start", "mark", "step", "stop")


class Profilers:
    """All profilers of a meter; the methods are those of ``Profiler``.

    Args:
        members: called in this order; stopped in reverse order.

    Attributes:
        offer: profilers that the next meter to start takes over; ``None`` for none.

    Raises:
        TypeError: for a member that lacks a method of ``Profiler``.
    """

    offer: "ClassVar[ProfilerOffer | None]" = None

    def __init__(self, members: Sequence[Profiler]) -> None:
        for member in members:
            if missing := [name for name in _METHODS if not callable(getattr(member, name, None))]:
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

    def start(self, meter: ActiveAttempt) -> None:
        """Start all members."""
        self._running = list(self._members)
        self._call(self._running, lambda member: member.start(meter))

    def mark(self, name: str, t_s: float) -> None:
        """Pass a mark on to the running members."""
        self._call(self._running, lambda member: member.mark(name, t_s))

    def step(self, t_s: float) -> None:
        """Pass a step on to the running members."""
        self._call(self._running, lambda member: member.step(t_s))

    def stop(self) -> None:
        """Stop the running members."""
        ending, self._running = self._running[::-1], []
        self._call(ending, lambda member: member.stop())

    def _call(self, members: Sequence[Profiler], method: Callable[[Profiler], None]) -> None:
        for member in tuple(members):
            try:
                method(member)
            except Exception as error:
                pass_on_signals()
                logger.warning("%s ends here: %r", type(member).__name__, error, exc_info=True)
                if member in self._running:  # else it is being stopped already
                    self._running.remove(member)
                    self._call((member,), lambda failed: failed.stop())


class ProfilerOffer:
    """Profilers that the next meter to start in this process takes over from another meter.

    Of meters that run at the same time, the first takes them. A meter that has a profiler of the
    same class keeps its own.

    Args:
        members: the profilers.
        on_taken: called before a meter takes them; the meter that had them must release them.
    """

    def __init__(self, members: Sequence[Profiler], on_taken: Callable[[], None]) -> None:
        self._members = members
        self._on_taken = on_taken
        self._holder = Profilers(())

    def added_to(self, own: Profilers) -> Profilers:
        """The profilers of a meter that starts, with those of this offer unless they are in use."""
        if self._holder:
            return own
        self._on_taken()
        own_types = {type(member) for member in own}
        added = [member for member in self._members if type(member) not in own_types]
        self._holder = Profilers((*own, *added))
        return self._holder
