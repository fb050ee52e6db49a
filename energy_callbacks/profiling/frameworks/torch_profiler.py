"""Records one window of steps with PyTorch's profiler.

PyTorch supports only one active profiler per process. If the training creates another profiler
while a window is open, PyTorch resets Kineto, its tracing library. Ending the window afterwards
would terminate the process (torch 2.13). Therefore this module ends the window before the other
profiler is created.
"""

import gc
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from energy_callbacks.profiling.common.main_thread import on_thread
from energy_callbacks.profiling.frameworks import protocol

RUNNING: Final = threading.Lock()
"""A lock that is held while a window is open in this process."""
# Assumed mean size in bytes of an event in the JSON file of a trace. The size of events is 200 to
# 500 bytes (torch 2.13).
_BYTES_OF_EVENT: Final = 300
_OCCUPIED: Final = (
    "the training runs its own torch.profiler.profile, and PyTorch can run only one: "
    "KernelProfiler does not record; remove one of the two"
)


class TorchRecorder:
    """A ``TraceRecorder`` for PyTorch.

    Args:
        path: path of the trace file without its suffix ``.json``.
        limits: length of the window and size of the trace; CUDA tracing starts in the warm-up.
        activities: returns the ``torch.profiler.ProfilerActivity`` values to record; ``None``
            records operators of the CPU and kernels of CUDA and XPU devices.
    """

    framework = "torch"

    def __init__(
        self,
        path: Path,
        limits: protocol.WindowLimits,
        activities: Callable[[], list[Any]] | None = None,
    ) -> None:
        self._path = path.with_suffix(".json")
        self._limits = limits
        self._activities = activities or _all_activities
        self._thread = threading.get_ident()
        self._profile: Any = None
        self._undo = ExitStack()
        self._is_recorded = self._is_replaced = False

    def open(self) -> None:
        """Open the window; see ``TraceRecorder.open``."""
        from torch.profiler import schedule

        if _is_foreign():
            raise protocol.OccupiedError(_OCCUPIED)
        if not RUNNING.acquire(blocking=False):
            raise protocol.NotNowError("another profiler of energy_callbacks is recording")
        warm_up, active = self._limits.warm_up_steps, self._limits.active_steps
        with ExitStack() as undo:
            undo.callback(RUNNING.release)
            profile = _profile(
                activities=self._activities(),
                schedule=schedule(wait=0, warmup=warm_up, active=active, repeat=1),
                on_trace_ready=self._note_recorded,
            )
            profile.start()
            kind: Any = sys.modules["torch.autograd.profiler"].profile
            undo.callback(setattr, kind, "__init__", kind.__init__)
            kind.__init__ = self._leaving_before(kind.__init__)
            self._undo = undo.pop_all()
        self._profile = profile

    def _note_recorded(self, _: Any) -> None:
        self._is_recorded = True

    def _leaving_before(self, create: Callable[..., None]) -> Callable[..., None]:
        """Return a function that ends this window, then calls ``create``.

        Args:
            create: the ``__init__`` method of PyTorch's profilers.
        """

        def leave_and_create(other: Any, *args: Any, **settings: Any) -> None:
            if self._profile is not None:
                self._end()
                self._is_replaced = True
            create(other, *args, **settings)

        return leave_and_create

    def step(self) -> None:
        """Handle the end of a step; see ``TraceRecorder.step``."""
        if self._is_replaced:
            raise protocol.OccupiedError(_OCCUPIED)
        self._profile.step()

    def close(self) -> Path:
        """End the window and write the trace; see ``TraceRecorder.close``."""
        try:
            self.step()  # PyTorch stops recording at the end of the last active step
            if not self._is_recorded:
                raise RuntimeError("PyTorch's profiler has not finished its recording")
            self._check_size(len(self._profile.profiler.kineto_results.events()))
            self._profile.export_chrome_trace(str(self._path))
        finally:
            self._end()
        if error := self._limits.too_large(self._path.stat().st_size):
            self._path.unlink()
            raise error
        return self._path

    def _check_size(self, events: int) -> None:
        limits = self._limits
        if events > limits.max_events or events * _BYTES_OF_EVENT > limits.max_bytes:
            raise protocol.TooLargeError(
                f"a window has {events:,} events, more than max_events={limits.max_events:,} or "
                f"than fit into max_trace_bytes={limits.max_bytes:,}; give KernelProfiler fewer "
                "active_steps, or allow more"
            )

    def abort(self) -> None:
        """Discard the open window.

        If a thread other than the one that created the recorder calls this method, the window may
        end after the call.
        """
        if not on_thread(self._thread, self._end):
            self._end()

    def _end(self) -> None:
        profile, self._profile = self._profile, None
        if profile is not None:
            try:
                profile.stop()
            finally:
                profile.profiler = None  # free the events, which a reference cycle keeps in memory
                self._undo.close()


def _is_foreign() -> bool:
    """Return whether the training has a PyTorch profiler of its own, running or not.

    Returns ``False`` while a window of this package is open.
    """
    if RUNNING.locked():
        return False
    torch: Any = sys.modules["torch"]
    if torch.autograd._profiler_enabled():  # noqa: SLF001 - no public function tells this
        return True
    if not _has_other(torch.profiler.profile):
        return False
    gc.collect()  # a reference cycle may keep an ended profiler in memory
    return _has_other(torch.profiler.profile)


def _has_other(profile: type) -> bool:
    kinds = map(type, gc.get_objects())  # isinstance() would initialise lazy objects
    return any(issubclass(kind, profile) and kind.__module__ != __name__ for kind in kinds)


def _profile(**settings: Any) -> Any:
    """Return a new ``torch.profiler.profile`` with ``settings``.

    Its class is a subclass that counts as defined in this module, so ``_has_other`` ignores it.

    ``record_shapes``, ``profile_memory``, ``with_stack`` and ``with_flops`` are off, because each
    makes steps slower and traces larger. ``with_stack`` also makes the spans of steps in the trace
    incorrect (pytorch/pytorch#174555).
    """
    import torch.profiler

    return type("profile", (torch.profiler.profile,), {"__module__": __name__})(**settings)


def _all_activities() -> list[Any]:
    import torch
    from torch.profiler import ProfilerActivity

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        activities.append(ProfilerActivity.XPU)
    return activities
