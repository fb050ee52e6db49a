"""Records CUDA events with the driver API, on the stream on which PyTorch trains.

This module never waits for a device and never initialises a device. It records no event on a stream
that is being captured into a graph. TensorFlow and JAX are not supported, because they do not
expose their streams to Python.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

from energy_callbacks.core.errors import SourceLost
from energy_callbacks.core.units import seconds_from_milliseconds
from energy_callbacks.sensing.frameworks.cuda_driver import awake_driver, current_uuid
from energy_callbacks.sensing.frameworks.loaded_frameworks import awake_torch

# From cuda.h.
_SUCCESS: Final = 0
_NOT_READY: Final = 600  # CUDA_ERROR_NOT_READY
_TIMED: Final = 0  # CU_EVENT_DEFAULT
_NON_BLOCKING: Final = 1  # CU_STREAM_NON_BLOCKING: never waits for the legacy default stream
_RELAXED: Final = 2  # CU_STREAM_CAPTURE_MODE_RELAXED

Event = Any


class Events(Protocol):
    """Interface to the events of a device, which mark the ends of queued work.

    ``elapsed_s`` and ``is_done`` may be called from any thread inside ``attached``, and raise
    ``SourceLost`` if the device no longer responds.

    Attributes:
        uuid: UUID of the device or of its MIG instance, without ``GPU-`` or ``MIG-``; ``None`` if
            the driver does not return it.
    """

    uuid: str | None

    def create(self) -> Event | None:
        """Return a new event; ``None`` if the driver cannot create one."""
        ...

    def record(self, event: Event) -> bool:
        """Queue an event after all work queued so far, and return whether this was possible."""
        ...

    def record_idle(self, event: Event) -> bool:
        """Queue an event on an empty stream, and return whether this was possible.

        No other work is queued on this stream, so the event occurs almost immediately, even if much
        work is queued on other streams.
        """
        ...

    def is_done(self, event: Event) -> bool:
        """Return whether an event has occurred on the device."""
        ...

    def elapsed_s(self, start: Event, end: Event) -> float | None:
        """Return the device time from ``start`` to ``end``, s; ``None`` until both have occurred.

        The time is negative if ``end`` occurred first.
        """
        ...

    def attached(self) -> AbstractContextManager[None]:
        """Return a context manager inside which the calling thread may query events."""
        ...

    def destroy(self, event: Event) -> None:
        """Release an event."""
        ...

    def close(self) -> None:
        """Release all resources except events."""
        ...


class CudaEvents:
    """Implements ``Events`` in the CUDA context of a training thread.

    Args:
        driver: the CUDA driver library, initialised.
        context: the ``CUcontext`` that is current on the training thread.
        device: function that returns the argument for ``current_stream``: the ordinal of PyTorch's
            current device, or any number if ``current_stream`` ignores the argument.
        current_stream: function that returns the handle of PyTorch's current stream on a device.
        is_capturing: function that returns whether PyTorch's current stream is being captured into
            a graph; ``None`` to query the driver, which takes longer.
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
        # Two functions, because one function that calls both would make ``record`` slower.
        self._device, self._current_stream = device, current_stream
        # PyDLL is used because it does not release the GIL: acquiring the GIL again would take
        # longer than the call.
        quick = ctypes.PyDLL(driver._name, handle=driver._handle)  # noqa: SLF001 - as documented
        self._ask_capturing, self._record = quick.cuStreamIsCapturing, quick.cuEventRecord
        self._ask_capturing.argtypes = self._record.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._is_capturing = is_capturing or self._is_captured_for_the_driver
        self._idle = ctypes.c_void_p()
        with self.attached():
            driver.cuStreamCreate(ctypes.byref(self._idle), _NON_BLOCKING)
            self.uuid = current_uuid(driver)

    def create(self) -> Event | None:
        """See ``Events``."""
        event = ctypes.c_void_p()
        with self._relaxed():
            created = self._driver.cuEventCreate(ctypes.byref(event), _TIMED)
        return event if created == _SUCCESS else None

    def record(self, event: Event) -> bool:
        """See ``Events``; not possible while the current stream is being captured."""
        try:
            # This query is safe during a capture (cuStreamIsCapturing); recording is not.
            if self._is_capturing():
                return False
            stream = self._current_stream(self._device())
        except RuntimeError:  # PyTorch reports the error of an earlier kernel
            return False
        return bool(self._record(event, stream) == _SUCCESS)

    def _is_captured_for_the_driver(self) -> bool:
        status = ctypes.c_int()
        result = self._ask_capturing(self._current_stream(self._device()), ctypes.byref(status))
        return bool(result != _SUCCESS or status.value)

    def record_idle(self, event: Event) -> bool:
        """See ``Events``; uses a stream of this object."""
        # A null handle would mean the default stream, on which other work may be queued.
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
            raise SourceLost(f"the CUDA driver returned {result} for an event")
        return result == _SUCCESS

    @contextmanager
    def attached(self) -> Iterator[None]:
        """See ``Events``.

        Raises:
            SourceLost: if the context no longer exists.
        """
        if self._driver.cuCtxPushCurrent_v2(self._context) != _SUCCESS:
            raise SourceLost("the CUDA context no longer exists")
        try:
            with self._relaxed():
                yield
        finally:
            self._driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    @contextmanager
    def _relaxed(self) -> Iterator[None]:
        """Allow the calling thread to query and create events while a graph is captured.

        If a thread captures in the global mode, a query by another thread invalidates the capture,
        unless the querying thread is in the relaxed mode (cuThreadExchangeStreamCaptureMode).
        """
        mode = ctypes.c_int(_RELAXED)
        self._driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        try:
            yield
        finally:
            self._driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))

    def destroy(self, event: Event) -> None:
        """See ``Events``; the driver releases a pending event as soon as it has occurred."""
        self._driver.cuEventDestroy_v2(event)

    def close(self) -> None:
        """See ``Events``."""
        idle, self._idle = self._idle, ctypes.c_void_p()
        if idle:
            self._driver.cuStreamDestroy_v2(idle)


def open_events() -> CudaEvents | None:
    """Return the interface to the events of the device on which the calling thread trains.

    ``None`` if PyTorch has not initialised CUDA, or if this thread has no CUDA context.
    """
    torch = awake_torch()
    if torch is None or (driver := awake_driver()) is None:
        return None
    context = ctypes.c_void_p()
    if driver.cuCtxGetCurrent(ctypes.byref(context)) != _SUCCESS or not context:
        return None
    is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)  # noqa: SLF001
    return CudaEvents(driver, context, *_current_stream(torch), is_capturing)


def _current_stream(torch: Any) -> tuple[Callable[[], int], Callable[[int], int]]:
    """Return the arguments ``device`` and ``current_stream`` of ``CudaEvents`` for PyTorch.

    The public function ``torch.cuda.current_stream`` creates an object in each call. This would
    take most of the time of ``CudaEvents.record``. Therefore, two private functions of PyTorch are
    used if they exist: ``_cuda_getDevice`` and ``_cuda_getCurrentRawStream``. The second one is
    also used by the code that ``torch.compile`` generates (torch._inductor, ``get_raw_stream``).
    """
    handle = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # noqa: SLF001 - see above
    device = getattr(torch._C, "_cuda_getDevice", None)  # noqa: SLF001 - see above
    if handle is None or device is None:
        return lambda: 0, lambda _: int(torch.cuda.current_stream().cuda_stream)
    return device, handle
