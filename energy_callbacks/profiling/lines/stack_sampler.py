"""Samples the main thread's stack at random moments; the main thread reads its own stack.

A sampling thread requests the samples. No signal is used, and no thread reads another thread's
stack: see ``profiling/common/main_thread.py``. In this module, a thread *waits for the interpreter*
if it needs the global interpreter lock (GIL) while another thread holds it.
"""

import contextlib
import ctypes
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Final, NamedTuple

from energy_callbacks.core import forks
from energy_callbacks.core.guard import logger, pass_on_signals
from energy_callbacks.profiling.common.main_thread import Pending

_SHORT_S: Final = 0.001
"""A request that is pending for this time or longer is assumed to wait for the end of a call of C
code. During such a call, the main thread serves no requests."""
_PUNCTUAL_S: Final = 0.00025
"""If sleeps are not counted (``ContextSwitches``), a thread that wakes up at most this late is
assumed not to have waited for the interpreter. Without such a wait, threads wake up at most
0.2 ms late with Linux 6.18."""
_JOIN_S: Final = 1.0
"""Maximum time to wait for the end of the sampling thread, in seconds."""
_SMOOTHING: Final = 0.1
"""Weight of the newest sample in the moving average of the cost of samples."""


class StackSample(NamedTuple):
    """The time span that a stack sample represents, and the CPU load while its request was pending.

    A sample represents the time from the previous sampling moment until its own sampling moment.
    These moments are random, so that on average each line gets the time that it took. If further
    sampling moments pass while a request waits for the end of a call, the sample represents the
    time until the last of these moments.

    Attributes:
        since_s: start of the span, which is the end of the previous sample's span.
        asked_s: the sampling moment of the request (``SampleRequest.moment_s``).
        until_s: end of the span: the newest sampling moment before the request was served.
        cpu: mean number of cores that the main thread used between the request and the sample; 1 if
            less than 1 ms passed between them.
        others: mean number of cores that the other threads of the process used between the request
            and the sample; 0 if less than 1 ms passed between them.
        is_before: whether the main thread held the interpreter at ``asked_s`` and released it only
            in the sampled call. The time until ``asked_s`` then belongs to the code before the
            call.
    """

    since_s: float
    asked_s: float
    until_s: float
    cpu: float
    others: float
    is_before: bool


class SampleRequest(NamedTuple):
    """A request to the main thread for a stack sample.

    Attributes:
        moment_s: the sampling moment, in seconds of ``time.monotonic``.
        asked_s: time of the request, which is later than ``moment_s`` if the sampling thread was
            delayed.
        held_up_s: seconds for which the sampling thread waited for the interpreter.
        cpu_s: CPU time of the main thread at the request.
        process_s: CPU time of the process at the request.
    """

    moment_s: float
    asked_s: float
    held_up_s: float
    cpu_s: float
    process_s: float

    def served(
        self, now_s: float, span_s: tuple[float, float], cpu_s: float, process_s: float
    ) -> StackSample:
        """Return the sample for this request.

        Args:
            now_s: time at which the main thread serves the request.
            span_s: start and end of the time span that the sample represents.
            cpu_s: CPU time of the main thread now.
            process_s: CPU time of the process now.
        """
        waited_s = now_s - self.asked_s
        is_short = waited_s < _SHORT_S
        cpu, others = 1.0, 0.0
        if not is_short:
            cpu = min((cpu_s - self.cpu_s) / waited_s, 1.0)
            others = max((process_s - self.process_s) / waited_s - cpu, 0.0)
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
    """Chooses random sampling moments, fewer of them if samples take long.

    Args:
        start_s: the first moment, in seconds of ``time.monotonic``.
        rate_hz: mean number of moments per second; reduced if samples exceed ``max_share``.
        max_share: share of the time that samples may take on average.

    Attributes:
        due_s: the next moment, in seconds of ``time.monotonic``.
    """

    def __init__(self, start_s: float, rate_hz: float, max_share: float) -> None:
        self.due_s = start_s
        self._period_s = 1.0 / rate_hz
        self._max_share = max_share
        self._cost_s = 0.0
        self._random = random.Random()  # noqa: S311 - no secret; keeps the user's generator unchanged

    def pass_by(
        self, now_s: float, *, waited_s: float, sleeps: int | None, took_s: float
    ) -> tuple[float, float]:
        """Return the sampling moment that is due, and choose the next one.

        Args:
            now_s: time at which the sampling thread wakes up; not before ``due_s``.
            waited_s: how many seconds the thread was ready to run but had no processor.
            sleeps: how many times the thread went to sleep since the previous call; ``None`` if
                the operating system does not count.
            took_s: duration of the previous sample in seconds.

        Returns:
            The sampling moment, and how many seconds the sampling thread waited for the
            interpreter. Without such a wait, the moment is ``now_s``.
        """
        late_s = now_s - self.due_s - waited_s
        is_held_up = late_s > _PUNCTUAL_S if sleeps is None else sleeps > 1
        self._cost_s += _SMOOTHING * (waited_s + took_s - self._cost_s)
        period_s = max(self._period_s, self._cost_s / self._max_share)
        moment_s = now_s
        while self.due_s <= now_s:
            moment_s = self.due_s if is_held_up else now_s
            self.due_s += period_s * self._random.uniform(0.5, 1.5)
        return moment_s, late_s if is_held_up else 0.0


class StackSampler:
    """Runs a thread that requests stack samples from the main thread, one at a time.

    Args:
        take: called with the innermost frame and the sample, on the main thread.
        rate_hz: mean number of samples per second. The times between samples are uniformly
            distributed between 0.5 and 1.5 times their mean, so that samples are not synchronous
            with the training steps.
        max_share: share of the time that samples may take on average. The time for which the
            sampling thread waits for a processor counts too, because a request stops the main
            thread for this time. If other programs use all processors, this wait takes some
            milliseconds, and samples become less frequent.

    Attributes:
        looks: number of samples so far.
        cost_s: seconds that samples have taken so far; after ``stop``, the CPU time of the sampling
            thread is included.

    Raises:
        RuntimeError: if created on another thread than the main thread, or if this interpreter or
            operating system is not supported.
    """

    def __init__(
        self, take: Callable[[FrameType, StackSample], None], rate_hz: float, max_share: float = 1.0
    ) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "the training runs on another thread, but only the stack of the main thread can "
                "be read; call fit() on the main thread"
            )
        self._cpu_s = _cpu_clock()
        self.looks = 0
        self.cost_s = 0.0
        self._take_sample: Callable[[FrameType, StackSample], None] = take
        self._took_s = 0.0
        self._generation = forks.generation
        self._pending = Pending(self._serve)
        self._is_asked = False
        now_s = self._until_s = self._since_s = time.monotonic()
        self._schedule = SamplingSchedule(now_s, rate_hz, max_share)
        self._request = SampleRequest(now_s, now_s, 0.0, 0.0, 0.0)
        self._running = threading.Lock()  # held until sampling ends; cheaper than an event
        self._running.acquire()
        self._thread = threading.Thread(
            target=self._run, name="energy_callbacks lines", daemon=True
        )

    def start(self) -> None:
        """Start the sampling thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling, and discard a pending request; can be called on any thread."""
        self._end()
        if self._generation == forks.generation:
            self._thread.join(_JOIN_S)

    def _end(self) -> None:
        self._pending.job = None
        if self._running.locked():
            self._running.release()

    def _run(self) -> None:
        queue, switches, schedule = _RunQueue(), ContextSwitches(), self._schedule
        while True:
            if self._running.acquire(timeout=max(schedule.due_s - time.monotonic(), 0.0)):
                self.cost_s += time.thread_time()
                queue.close()
                return
            now_s = time.monotonic()
            self._until_s, held_up_s = schedule.pass_by(
                now_s, waited_s=queue.waited_s(), sleeps=switches.since_last(), took_s=self._took_s
            )
            if self._pending.is_lost:
                self._pending.is_lost = self._is_asked = False
            if not self._is_asked:
                self._ask(now_s, held_up_s)

    def _ask(self, now_s: float, held_up_s: float) -> None:
        cpu_s, process_s = self._cpu_s(), time.process_time()
        self._request = SampleRequest(self._until_s, now_s, held_up_s, cpu_s, process_s)
        self._is_asked = True  # set first: the main thread may serve the request at once
        if not self._pending.ask():
            self._is_asked = False

    def _serve(self, frame: FrameType) -> None:
        """Take a sample on the main thread; errors except ``RecursionError`` end the sampling."""
        if self._generation != forks.generation:
            return
        try:
            self._take(frame)
        except RecursionError:
            raise
        except Exception:
            pass_on_signals()
            self._end()
            logger.warning("the energy by line of source is no longer recorded", exc_info=True)

    def _take(self, frame: FrameType) -> None:
        now_s = time.monotonic()
        sample = self._request.served(
            now_s, (self._since_s, self._until_s), time.thread_time(), time.process_time()
        )
        self._since_s = sample.until_s
        try:
            self._take_sample(frame, sample)
            self.looks += 1
            self._took_s = time.monotonic() - now_s
            self.cost_s += self._took_s
        finally:
            # Last: if a program is traced or profiled, and a request waits in the queue during a
            # pending call, CPython 3.11 never enters the next Python function (``ceval.c``:
            # ``DO_TRACING`` repeats ``RESUME`` until the queue is empty).
            self._is_asked = False


def _cpu_clock() -> Callable[[], float]:
    """Return a function that returns the CPU time of the thread that calls this, on any thread."""
    if sys.platform != "linux":
        raise RuntimeError(f"lines are profiled only on Linux, and this is {sys.platform}")
    return partial(time.clock_gettime, time.pthread_getcpuclockid(threading.get_ident()))


class _RunQueue:
    """Reads how long the calling thread was ready to run but had no processor.

    Linux reports this time in ``/proc/thread-self/schedstat``. The rest of a thread's delay is time
    in which the thread waited for the interpreter. The file is read by a C function that does not
    release the interpreter: ``os.read`` releases it, and getting it back from a busy thread takes
    5 ms, Python's switch interval.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        self._text = ctypes.create_string_buffer(64)
        self._before_ns = 0
        with contextlib.suppress(OSError, AttributeError):
            self._read: Any = ctypes.PyDLL(None).pread
            self._read.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long)
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self.waited_s()

    def waited_s(self) -> float:
        """Return the seconds without a processor since the previous call; 0 if unknown."""
        if self._file is None:
            return 0.0
        length = self._read(self._file, self._text, len(self._text), 0)
        words = self._text.raw[: max(length, 0)].split()
        if len(words) < 2:
            return 0.0
        waited_ns, self._before_ns = int(words[1]) - self._before_ns, int(words[1])
        return waited_ns * 1e-9

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class ContextSwitches:
    """Counts how many times the calling thread went to sleep.

    Between two sampling moments, a thread that waits only for its timer sleeps once. A thread that
    also waits for the interpreter sleeps more often.
    """

    def __init__(self) -> None:
        self._before = self._count()

    def since_last(self) -> int | None:
        """Return the number of sleeps since the previous call; ``None`` if they are not counted."""
        before, self._before = self._before, self._count()
        return self._before - before if self._before else None

    @staticmethod
    def _count() -> int:
        if sys.platform == "linux":
            import resource

            return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        return 0
