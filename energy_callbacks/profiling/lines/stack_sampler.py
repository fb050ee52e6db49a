"""Samples the main thread's stack at random moments; the main thread reads it itself.

There is no signal and no timer, and no thread reads another's stack: see ``main_thread``.
"""

import contextlib
import ctypes
import logging
import os
import random
import resource
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, NamedTuple

from energy_callbacks.core import forks
from energy_callbacks.core.guard import pass_on_signals
from energy_callbacks.profiling.common.main_thread import Pending

logger = logging.getLogger("energy_callbacks")

_SHORT_S: Final = 0.001
"""Between two bytecodes the main thread answers sooner than this; a call that lasts, later."""
_PUNCTUAL_S: Final = 0.00025
"""A thread that waits only for its timer wakes this much too late (0.2 ms, Linux 6.18)."""
_JOIN_S: Final = 1.0
_MEMORY: Final = 0.1
"""How much the newest moment counts in the mean of what moments cost."""


class StackSample(NamedTuple):
    """One look at the stack, and the time that it stands for.

    The moments at which is asked do not depend on what the program does, so each stands for the
    time since the one before: in the mean every line gets what it took. Moments that pass while a
    request waits for the end of a call belong to that call, too.

    Attributes:
        since_s: the last moment that an earlier look stands for.
        asked_s: the moment that the request was made for.
        until_s: the newest moment; later than ``asked_s`` if the call lasted.
        cpu: CPU seconds of the main thread a second, from the request until it was served.
        others: of the process's other threads, meanwhile.
        is_before: the thread held the interpreter when the moment came, and let it go only in the
            call that is seen: that moment belongs to what came before the call.
    """

    since_s: float
    asked_s: float
    until_s: float
    cpu: float
    others: float
    is_before: bool


class SampleRequest(NamedTuple):
    """The main thread was asked to look, and has not yet.

    Attributes:
        moment_s: that it was asked for.
        asked_s: when; later if the thread that asks was held up.
        held_up_s: by the interpreter; 0 if it was not.
        cpu_s: CPU time of the main thread by then.
        process_s: and of the whole process.
    """

    moment_s: float
    asked_s: float
    held_up_s: float
    cpu_s: float
    process_s: float

    def heard(
        self,
        now_s: float,
        span_s: tuple[float, float],
        cpu_s: Callable[[], float],
        process_s: Callable[[], float],
    ) -> StackSample:
        """The look that comes of it.

        Args:
            now_s: when the main thread served it.
            span_s: the last moment that an earlier look stands for, and the newest one.
            cpu_s: CPU time of the main thread now; asked for if a call has lasted.
            process_s: and of the whole process.
        """
        waited_s = now_s - self.asked_s
        is_short = waited_s < _SHORT_S
        cpu, others = 1.0, 0.0
        if not is_short:
            cpu = min((cpu_s() - self.cpu_s) / waited_s, 1.0)
            others = max((process_s() - self.process_s) / waited_s - cpu, 0.0)
        is_forced = self.held_up_s > 0.9 * sys.getswitchinterval() and is_short
        return StackSample(
            since_s=span_s[0],
            asked_s=self.moment_s,
            until_s=span_s[1],
            cpu=cpu,
            others=others,
            is_before=self.held_up_s > 0.0 and not is_forced,
        )


class SamplingSchedule:
    """When to look: moments that scatter, and become rare if looks cost much.

    Args:
        start_s: the first.
        rate_hz: their mean number a second.
        max_share: of the time that looks may take.

    Attributes:
        due_s: the next one.
    """

    def __init__(self, start_s: float, rate_hz: float, max_share: float) -> None:
        self.due_s = start_s
        self._period_s = 1.0 / rate_hz
        self._max_share = max_share
        self._lost_s = 0.0
        self._dice = random.Random()  # noqa: S311 - no secret; the user's own stay untouched

    def pass_by(
        self, now_s: float, *, waited_s: float, rests: int | None, look_s: float
    ) -> tuple[float, float]:
        """The newest moment, and by how much the interpreter has held it up.

        Args:
            now_s: when the thread that asks is awake, after ``due_s``.
            waited_s: how long it was ready before, without a processor.
            rests: how many times it went to sleep; ``None`` if the kernel does not count.
            look_s: what the look before has taken.
        """
        late_s = now_s - self.due_s - waited_s
        is_held_up = late_s > _PUNCTUAL_S if rests is None else rests > 1
        self._lost_s += _MEMORY * (waited_s + look_s - self._lost_s)
        period_s = max(self._period_s, self._lost_s / self._max_share)
        moment_s = now_s
        while self.due_s <= now_s:
            moment_s = self.due_s if is_held_up else now_s
            self.due_s += period_s * self._dice.uniform(0.5, 1.5)
        return moment_s, late_s if is_held_up else 0.0


class StackSampler:
    """A thread that asks the main thread to look, one request at a time.

    Args:
        look: called with the innermost frame and the sample, on the main thread.
        rate_hz: mean number of moments a second; they scatter evenly from half to one and a half
            periods, so that no step keeps pace with them.
        max_share: of the time that looks may take. The main thread stands still until the thread
            that asks gets a processor; if others have them all that is some ms, and moments
            become rarer.

    Raises:
        RuntimeError: on another thread than the main one, or if this interpreter cannot.
    """

    def __init__(
        self, look: Callable[[FrameType, StackSample], None], rate_hz: float, max_share: float = 1.0
    ) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "the training runs on another thread than the main one, whose stack alone can be "
                "read: got no lines; call fit() on the main thread"
            )
        self.looks = 0
        self.cost_s = 0.0
        self._look: Callable[[FrameType, StackSample], None] = look
        self._look_s = 0.0
        self._generation = forks.generation
        self._answer = Pending(self._hear)
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._is_asked = False
        now_s = self._until_s = self._since_s = time.monotonic()
        self._moments = SamplingSchedule(now_s, rate_hz, max_share)
        self._request = SampleRequest(now_s, now_s, 0.0, 0.0, 0.0)
        self._running = threading.Lock()  # held until it is over; cheaper than an event
        self._running.acquire()
        self._thread = threading.Thread(
            target=self._run, name="energy_callbacks lines", daemon=True
        )

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; a request that still waits will do nothing. On any thread, once."""
        self._end()
        if self._generation == forks.generation:
            self._thread.join(_JOIN_S)

    def _end(self) -> None:
        self._answer.job = None
        if self._running.locked():
            self._running.release()

    def _run(self) -> None:
        queue, rests, moments = _RunQueue(), ContextSwitches(), self._moments
        while True:
            if self._running.acquire(timeout=max(moments.due_s - time.monotonic(), 0.0)):
                self.cost_s += time.thread_time()
                queue.close()
                return
            now_s = time.monotonic()
            self._until_s, held_up_s = moments.pass_by(
                now_s, waited_s=queue.waited_s(), rests=rests.since_last(), look_s=self._look_s
            )
            if self._answer.is_lost:
                self._answer.is_lost = self._is_asked = False
            if not self._is_asked:
                self._ask(now_s, held_up_s)

    def _ask(self, now_s: float, held_up_s: float) -> None:
        cpu_s = time.clock_gettime(self._clock)
        self._request = SampleRequest(self._until_s, now_s, held_up_s, cpu_s, time.process_time())
        self._is_asked = True  # before the main thread may serve it
        if not self._answer.ask():
            self._is_asked = False

    def _hear(self, frame: FrameType) -> None:
        """On the main thread; what it raises of its own ends it."""
        if self._generation != forks.generation:
            return
        try:
            self._take(frame)
        except RecursionError:
            raise
        except Exception:
            pass_on_signals()
            self._end()
            logger.warning("energy by lines of source ends here", exc_info=True)

    def _take(self, frame: FrameType) -> None:
        now_s = time.monotonic()
        look = self._request.heard(
            now_s, (self._since_s, self._until_s), time.thread_time, time.process_time
        )
        self._since_s = look.until_s
        self._is_asked = False
        self._look(frame, look)
        self.looks += 1
        self._look_s = time.monotonic() - now_s
        self.cost_s += self._look_s


class _RunQueue:
    """How long the calling thread was ready to run without a processor, from Linux's schedstat.

    What is left of a thread's delay was spent waiting for the interpreter. The file is read
    through the C library with the interpreter held: to let it go costs 5 ms beside busy Python.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        self._text = ctypes.create_string_buffer(64)
        self._before_ns = 0
        with contextlib.suppress(OSError, AttributeError):
            self._read: Any = ctypes.PyDLL(None).pread
            self._read.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long)
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self.waited_s()

    def waited_s(self) -> float:
        """Since the last call; 0 if unknown."""
        if self._file is None:
            return 0.0
        length = self._read(self._file, self._text, len(self._text), 0)
        words = self._text.raw[: max(length, 0)].split()
        if len(words) < 2:
            return 0.0
        waited_ns, self._before_ns = int(words[1]) - self._before_ns, int(words[1])
        return waited_ns * 1e-9

    def close(self) -> None:
        """Give back the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class ContextSwitches:
    """How many times the calling thread lay down to wait, as the kernel counts.

    Once between two moments: for its timer. More often: it found the interpreter held.
    """

    def __init__(self) -> None:
        self._before = self._count()

    def since_last(self) -> int | None:
        """Since the last call; ``None`` if the kernel does not count."""
        before, self._before = self._before, self._count()
        return self._before - before if self._before else None

    @staticmethod
    def _count() -> int:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
