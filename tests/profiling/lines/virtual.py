"""Programs in virtual time, sampled as CPython would sample them.

Python holds the interpreter: another thread gets it after the switch interval, or when a call
releases it. A request during a call is served at its end.
"""

import sys
from types import FrameType, SimpleNamespace

import pytest

from energy_callbacks.profiling.lines.stack_sampler import (
    SampleRequest,
    SamplingSchedule,
    StackSample,
)
from energy_callbacks.testing import FakeClock


class Interpreter:
    """Replaces work and waiting of a virtual program.

    Args:
        clock: work and waiting advance it.
        look: called with frames and samples, as by ``StackSampler``.
        rate_hz: mean number of samples per second.
    """

    def __init__(self, clock: FakeClock, look=None, rate_hz: float = 200.0) -> None:
        self.clock = clock
        self.looks = 0
        self.cost_s = self.cpu_s = 0.0
        self._look = look
        self._request: SampleRequest | None = None
        self._since_s = self._until_s = clock.monotonic_s()
        self._moments = SamplingSchedule(self._since_s, rate_hz, 1.0)

    def work(self, duration_s: float) -> None:
        """Run Python for some time."""
        end_s = self._now_s + duration_s
        while (forced_s := max(self._due_s + sys.getswitchinterval(), self._now_s)) < end_s:
            self._compute(forced_s)
            self._ask(is_held_up=True)
            self._hear(sys._getframe(1))
        self._compute(end_s)

    def wait(self, duration_s: float) -> None:
        """Call a function that releases the interpreter and waits."""
        end_s = self._now_s + duration_s
        if self._due_s < self._now_s:
            self._ask(is_held_up=True)
        while self._due_s < end_s:
            self.clock.advance(self._due_s - self._now_s)
            self._ask(is_held_up=False)
        self.clock.advance(end_s - self._now_s)
        if self._request is not None:
            self._hear(sys._getframe(1))

    @property
    def _now_s(self) -> float:
        return self.clock.monotonic_s()

    @property
    def _due_s(self) -> float:
        return self._moments.due_s

    def _compute(self, until_s: float) -> None:
        self.cpu_s += until_s - self._now_s
        self.clock.advance(until_s - self._now_s)

    def _ask(self, *, is_held_up: bool) -> None:
        now_s = self._now_s
        self._until_s, held_up_s = self._moments.pass_by(
            now_s, waited_s=0.0, sleeps=2 if is_held_up else 1, took_s=0.0
        )
        if self._request is None:
            self._request = SampleRequest(self._until_s, now_s, held_up_s, self.cpu_s, self.cpu_s)

    def _hear(self, frame: FrameType) -> None:
        assert self._request is not None
        look: StackSample = self._request.served(
            self._now_s, (self._since_s, self._until_s), self.cpu_s, self.cpu_s
        )
        self._request, self._since_s = None, look.until_s
        self._look(frame, look)
        self.looks += 1

    def install(self, patch: pytest.MonkeyPatch) -> "Interpreter":
        """Let line profilers sample this program."""
        profiler = "energy_callbacks.profiling.lines.profiler"
        patch.setattr(f"{profiler}.StackSampler", self._asked_by)
        patch.setattr(f"{profiler}.time", SimpleNamespace(process_time=lambda: self.cpu_s))
        return self

    def _asked_by(self, look, rate_hz: float, max_share: float) -> "Interpreter":
        self._look, self.looks = look, 0
        self._since_s = self._until_s = self._now_s
        self._moments = SamplingSchedule(self._now_s, rate_hz, max_share)
        return self

    def start(self) -> None:
        """Do nothing; part of the interface of ``StackSampler``."""

    def stop(self) -> None:
        """Do nothing; part of the interface of ``StackSampler``."""
        self._look = lambda frame, look: None


def count(interpreter: Interpreter, duration_s: float) -> None:
    """Work."""
    interpreter.work(duration_s)


def work_and_sleep(interpreter: Interpreter, turns: int, work_s: float, sleep_s: float) -> None:
    """Alternate Python with a call that releases the interpreter."""
    for _ in range(turns):
        interpreter.work(work_s)  # WORK
        interpreter.wait(sleep_s)  # SLEEP


def two_lines(interpreter: Interpreter, turns: int) -> None:
    """Alternate two lines with 30 % and 70 % of the time."""
    for _ in range(turns):
        interpreter.work(0.003)  # SHORT
        interpreter.work(0.007)  # LONG


def work_sleep_and_read(interpreter: Interpreter, turns: int) -> None:
    """Alternate a function that works with two lines that wait."""
    for _ in range(turns):
        count(interpreter, 0.05)  # WORK
        interpreter.wait(0.03)  # SLEEP
        interpreter.wait(0.02)  # READ
