"""CUDA events through the driver interface, on the stream that a framework trains on.

Nothing here waits for a device, wakes one, or touches a stream that is being captured into a
graph. The stream is PyTorch's current one: TensorFlow and JAX do not hand theirs to Python.
"""

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

from energy_callbacks.core.errors import SourceLost
from energy_callbacks.core.units import seconds_from_milliseconds
from energy_callbacks.sensing.frameworks.cuda_driver import awake_driver

# Of cuda.h.
_SUCCESS: Final = 0
_NOT_READY: Final = 600  # CUDA_ERROR_NOT_READY
_TIMED: Final = 0  # CU_EVENT_DEFAULT
_NON_BLOCKING: Final = 1  # CU_STREAM_NON_BLOCKING: never waits for the legacy default stream
_RELAXED: Final = 2  # CU_STREAM_CAPTURE_MODE_RELAXED

Event = Any


class Events(Protocol):
    """What timing a step's end needs of a device.

    ``elapsed_s`` and ``is_done`` raise ``SourceLost`` if the device answers no more; they may
    be called from any thread inside ``attached``.
    """

    def create(self) -> Event | None:
        """A new event; ``None`` if there is none to be had."""
        ...

    def record(self, event: Event) -> bool:
        """Put an event behind all work queued so far; ``False`` if that cannot be now."""
        ...

    def record_idle(self, event: Event) -> bool:
        """Put an event where nothing is queued, so that it happens at once."""
        ...

    def is_done(self, event: Event) -> bool:
        """Whether the device has passed an event."""
        ...

    def elapsed_s(self, start: Event, end: Event) -> float | None:
        """Device time from one event to another; ``None`` while either is to come."""
        ...

    def attached(self) -> AbstractContextManager[None]:
        """A context manager inside which the calling thread may ask."""
        ...

    def destroy(self, event: Event) -> None:
        """Give an event back to the driver."""
        ...

    def close(self) -> None:
        """Give all else back."""
        ...


class CudaEvents:
    """Events of the context in which the calling thread trains.

    Args:
        driver: libcuda, awake.
        context: the ``CUcontext`` that is current on the thread that trains.
        device: ordinal of the device that the framework trains on now.
        current_stream: handle of the stream that it trains on there.
        is_capturing: whether that stream is being captured; ``None`` asks the driver, which takes
            longer.
    """

    def __init__(
        self,
        driver: ctypes.CDLL,
        context: ctypes.c_void_p,
        device: Callable[[], int],
        current_stream: Callable[[int], int],
        is_capturing: Callable[[], bool] | None = None,
    ) -> None:
        self._driver = driver
        self._context = context
        # Called one by one, not by a function of ours: see ``StepEnds.mark``.
        self._device, self._current_stream = device, current_stream
        # Without letting go of the interpreter: to get it back would take longer than the calls.
        quick = ctypes.PyDLL(driver._name, handle=driver._handle)  # noqa: SLF001 - as documented
        self._ask_capturing, self._record = quick.cuStreamIsCapturing, quick.cuEventRecord
        self._ask_capturing.argtypes = self._record.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._is_capturing = is_capturing or self._is_captured_for_the_driver
        self._idle = ctypes.c_void_p()
        with self.attached():
            driver.cuStreamCreate(ctypes.byref(self._idle), _NON_BLOCKING)

    def create(self) -> Event | None:
        """See ``Events``."""
        event = ctypes.c_void_p()
        with self._relaxed():
            created = self._driver.cuEventCreate(ctypes.byref(event), _TIMED)
        return event if created == _SUCCESS else None

    def record(self, event: Event) -> bool:
        """See ``Events``; not while the stream is captured, nor on another device's stream."""
        try:
            # Asking is safe during a capture (cuStreamIsCapturing), recording would be part of it.
            if self._is_capturing():
                return False
            stream = self._current_stream(self._device())
        except RuntimeError:  # PyTorch raises here what an earlier launch has done, and will again
            return False
        return bool(self._record(event, stream) == _SUCCESS)

    def _is_captured_for_the_driver(self) -> bool:
        status = ctypes.c_int()
        result = self._ask_capturing(self._current_stream(self._device()), ctypes.byref(status))
        return bool(result != _SUCCESS or status.value)

    def record_idle(self, event: Event) -> bool:
        """See ``Events``; on a stream of our own."""
        # A null handle would mean the default stream, where work is queued.
        return bool(self._idle) and self._record(event, self._idle) == _SUCCESS

    def is_done(self, event: Event) -> bool:
        """See ``Events``."""
        return self._is_over(self._driver.cuEventQuery(event))

    def elapsed_s(self, start: Event, end: Event) -> float | None:
        """See ``Events``; resolution about 0.5 us (cuEventElapsedTime)."""
        elapsed_ms = ctypes.c_float()
        result = self._driver.cuEventElapsedTime(ctypes.byref(elapsed_ms), start, end)
        return seconds_from_milliseconds(elapsed_ms.value) if self._is_over(result) else None

    @staticmethod
    def _is_over(result: int) -> bool:
        if result not in (_SUCCESS, _NOT_READY):
            raise SourceLost(f"the CUDA driver answers {result} about an event")
        return result == _SUCCESS

    @contextmanager
    def attached(self) -> Iterator[None]:
        """See ``Events``.

        Raises:
            SourceLost: if the context is gone.
        """
        if self._driver.cuCtxPushCurrent_v2(self._context) != _SUCCESS:
            raise SourceLost("the CUDA context is gone")
        try:
            with self._relaxed():
                yield
        finally:
            self._driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    @contextmanager
    def _relaxed(self) -> Iterator[None]:
        """Let the calling thread ask and create while a graph is being captured.

        While any thread captures in the global mode, a query by another thread would spoil that
        capture, unless the asking thread is in the relaxed mode
        (cuThreadExchangeStreamCaptureMode).
        """
        mode = ctypes.c_int(_RELAXED)
        self._driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        try:
            yield
        finally:
            self._driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))

    def destroy(self, event: Event) -> None:
        """See ``Events``; one that is under way is released when it has passed."""
        self._driver.cuEventDestroy_v2(event)

    def close(self) -> None:
        """See ``Events``."""
        idle, self._idle = self._idle, ctypes.c_void_p()
        if idle:
            self._driver.cuStreamDestroy_v2(idle)


def open_events() -> CudaEvents | None:
    """Events of the device that the calling thread trains on; ``None`` while it uses none.

    Only if the training itself has imported PyTorch and initialised CUDA.
    """
    torch = sys.modules.get("torch")
    if torch is None or "torch.cuda" not in sys.modules or not torch.cuda.is_initialized():
        return None
    driver = awake_driver()
    if driver is None:
        return None
    context = ctypes.c_void_p()
    if driver.cuCtxGetCurrent(ctypes.byref(context)) != _SUCCESS or not context:
        return None
    is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)  # noqa: SLF001
    return CudaEvents(driver, context, *_current_stream(torch), is_capturing)


def _current_stream(torch: Any) -> tuple[Callable[[], int], Callable[[int], int]]:
    """How to ask for PyTorch's current device, and for the handle of its current stream.

    The public way makes an object each time, most of what an event would cost; the other is what
    compiled code of PyTorch itself uses (torch._inductor, ``get_raw_stream``).
    """
    handle = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # noqa: SLF001 - see above
    device = getattr(torch._C, "_cuda_getDevice", None)  # noqa: SLF001 - see above
    if handle is None or device is None:
        return lambda: 0, lambda _: int(torch.cuda.current_stream().cuda_stream)
    return device, handle
