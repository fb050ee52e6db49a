"""Passes the events of a meter to the meter's profilers, and stops a profiler that fails."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from energy_callbacks.accounting import profiler_names
from energy_callbacks.accounting.profiler_names import ProfilerName
from energy_callbacks.core.guard import logger, pass_on_signals

if TYPE_CHECKING:
    from energy_callbacks.accounting.attempt import ActiveAttempt


class ProfilerRun(Protocol):
    """Receives the events of an attempt, and profiles it.

    Methods run on the training thread; only ``stop`` may run on the journal's thread. If a method
    raises, a warning is logged and the profiler is stopped.
    """

    def mark(self, name: str, t_s: float) -> None:
        """Handle an event of the training loop that is not an optimizer step.

        Args:
            name: ``data_ready`` or ``batch_done``; a name that was passed to ``EnergyMeter.mark``;
                or ``phase:<name>`` with the current phase, after ``EnergyMeter.enter`` or
                ``leave``.
            t_s: monotonic time of the event.
        """
        ...

    def step(self, t_s: float) -> None:
        """Handle an optimizer step that Python finished at the monotonic time ``t_s``."""
        ...

    def stop(self) -> None:
        """Finish measuring and record the results, at the end of an attempt or after an error."""
        ...


class Profiler(ProfilerRun, Protocol):
    """Receives the events of all attempts of a training."""

    def start(self, meter: "ActiveAttempt") -> None:
        """Handle the start of an attempt; may be called again after ``stop``.

        Args:
            meter: the attempt; may be used until ``stop`` returns.
        """
        ...


OneOrMoreProfilers = Profiler | ProfilerName | Sequence[Profiler | ProfilerName]
"""The setting ``profilers``: objects or names; one of them needs no list."""

_METHODS = ("start", "mark", "step", "stop")


class Profilers:
    """Passes events to all profilers of a meter.

    Args:
        members: the profilers, as objects or names; one of them needs no list. They are called in
            this order, but stopped in reverse order.

    Attributes:
        running: the profilers that are running.
        offer: profilers of ``profiling.launch``, which meters of the launched program add to their
            own; ``None`` if ``profiling.launch`` offers none or does not run the program.

    Raises:
        TypeError: if a member lacks a method of ``Profiler``.
        ValueError: if a name is unknown.
    """

    offer: "ClassVar[ProfilerOffer | None]" = None

    def __init__(self, members: OneOrMoreProfilers) -> None:
        if isinstance(members, str) or not isinstance(members, Iterable):
            members = (members,)
        self._members = tuple(_as_profiler(member) for member in members)
        self.running: list[Profiler] = []

    def __bool__(self) -> bool:
        """Return whether any profiler is running."""
        return bool(self.running)

    def __iter__(self) -> Iterator[Profiler]:
        """Iterate over all profilers, whether they are running or not."""
        return iter(self._members)

    def start(self, meter: "ActiveAttempt") -> None:
        """Start all profilers for an attempt."""
        self.running = list(self._members)
        self._call(self.running, lambda member: member.start(meter))

    def add(self, member: Profiler) -> None:
        """Pass events to another profiler until ``stop``; it has been started."""
        self.running.append(member)

    def mark(self, name: str, t_s: float) -> None:
        """Pass an event to the running profilers."""
        self._call(self.running, lambda member: member.mark(name, t_s))

    def step(self, t_s: float) -> None:
        """Pass a step to the running profilers."""
        self._call(self.running, lambda member: member.step(t_s))

    def stop(self) -> None:
        """Stop the running profilers."""
        ending, self.running = self.running[::-1], []
        self._call(ending, lambda member: member.stop())

    def _call(self, members: Sequence[Profiler], method: Callable[[Profiler], None]) -> None:
        for member in tuple(members):
            try:
                method(member)
            except Exception as error:
                pass_on_signals()
                logger.warning("%s ends here: %r", type(member).__name__, error, exc_info=True)
                if member in self.running:  # otherwise it is already being stopped
                    self.running.remove(member)
                    self._call((member,), lambda failed: failed.stop())


def _as_profiler(member: Profiler | str) -> Profiler:
    """Return a profiler, or create the one that has this name.

    Raises:
        TypeError: if a method is missing.
        ValueError: if the name is unknown.
    """
    if isinstance(member, str):
        created: Profiler = profiler_names.create(member)
        return created
    if isinstance(member, type):
        raise TypeError(f"a profiler is an object, got the class; write {member.__name__}()")
    if missing := [name for name in _METHODS if not callable(getattr(member, name, None))]:
        raise TypeError(
            f"a profiler has start, mark, step and stop: got {member!r} without "
            f"{', '.join(missing)}; give objects such as KernelProfiler()"
        )
    return member


class ProfilerOffer:
    """Hands profilers over from the meter of ``profiling.launch`` to meters of the program.

    ``profiling.launch`` starts a meter of its own, which uses the profilers first. When the program
    starts a meter, the launcher's meter stops and the program's meter takes the profilers. While
    that meter runs, other meters do not get the profilers; after its end, the next meter that
    starts takes them. If a meter already has a profiler of the same class as an offered one, it
    keeps its own and does not take the offered one.

    Args:
        members: the offered profilers.
        on_taken: function that stops the launcher's meter; called before each handover.
    """

    def __init__(self, members: Sequence[Profiler], on_taken: Callable[[], None]) -> None:
        self._members = members
        self._on_taken = on_taken
        self._holder = Profilers(())

    def added_to(self, own: Profilers) -> Profilers:
        """Return the profilers for a meter of the program that starts.

        Args:
            own: the meter's own profilers.

        Returns:
            ``own`` and the offered profilers; only ``own`` while another meter of the program uses
            the offered profilers.
        """
        if self._holder:
            return own
        self._on_taken()
        own_types = {type(member) for member in own}
        added = [member for member in self._members if type(member) not in own_types]
        self._holder = Profilers((*own, *added))
        return self._holder
