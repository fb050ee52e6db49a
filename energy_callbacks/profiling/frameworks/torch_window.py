"""Runs PyTorch's profiler for one window of steps.

A process has one such profiler, and two end each other. If the training creates one while a window
is open, PyTorch resets Kineto, and ending the window afterwards ends the process (torch 2.13).
Therefore the window ends before the other profiler is created.
"""

import gc
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from energy_callbacks.profiling.common.main_thread import on_thread

RUNNING: Final = threading.Lock()
"""Held while a window is open in this process."""


class TorchWindow:
    """PyTorch's profiler from ``open`` until ``finished`` or ``abort``, on the creating thread.

    Args:
        warm_up_steps: steps in which CUPTI starts; they are discarded.
        active_steps: steps that are recorded.

    Attributes:
        is_replaced: whether the training has created a profiler, which ended the window.
    """

    def __init__(self, warm_up_steps: int, active_steps: int) -> None:
        self._steps = (warm_up_steps, active_steps)
        self._thread = threading.get_ident()
        self._profile: Any = None
        self._undo = ExitStack()
        self._is_recorded = self.is_replaced = False

    @property
    def is_open(self) -> bool:
        """Whether the profiler is running."""
        return self._profile is not None

    def open(self, activities: Sequence[Any]) -> bool:
        """Start the warm-up; returns ``False`` if another window is open in this process.

        Args:
            activities: of ``torch.profiler.ProfilerActivity``.
        """
        from torch.profiler import schedule

        if not RUNNING.acquire(blocking=False):
            return False
        warm_up, active = self._steps
        with ExitStack() as undo:
            undo.callback(RUNNING.release)
            profile = _profile(
                activities=activities,
                schedule=schedule(wait=0, warmup=warm_up, active=active, repeat=1),
                on_trace_ready=self._note_recorded,
            )
            profile.start()
            kind: Any = sys.modules["torch.autograd.profiler"].profile
            undo.callback(setattr, kind, "__init__", kind.__init__)
            kind.__init__ = self._leaving_before(kind.__init__)
            self._undo = undo.pop_all()
        self._profile = profile
        return True

    def _note_recorded(self, _: Any) -> None:
        self._is_recorded = True

    def _leaving_before(self, create: Callable[..., None]) -> Callable[..., None]:
        """Wrap the constructor of PyTorch's profilers: this window ends before another begins."""

        def leave_and_create(other: Any, *args: Any, **settings: Any) -> None:
            if self.is_open:
                self._end()
                self.is_replaced = True
            create(other, *args, **settings)

        return leave_and_create

    def step(self) -> None:
        """Mark the end of a step."""
        self._profile.step()

    @contextmanager
    def finished(self) -> Iterator[Any]:
        """End the window after its last step; gives the profiler, whose trace can be exported.

        Raises:
            RuntimeError: if PyTorch has not recorded all steps.
        """
        try:
            self.step()  # after the last active step PyTorch stops recording
            if not self._is_recorded:
                raise RuntimeError("PyTorch's profiler has not ended its window")
            yield self._profile
        finally:
            self._end()

    def abort(self) -> None:
        """End the window and discard its trace; called on another thread, it ends soon."""
        if not on_thread(self._thread, self._end):
            self._end()

    def _end(self) -> None:
        profile, self._profile = self._profile, None
        if profile is not None:
            try:
                profile.stop()
            finally:
                profile.profiler = None  # it is part of a reference cycle, and may be large
                self._undo.close()


def is_foreign() -> bool:
    """Return whether the training has a profiler, running or scheduled."""
    if RUNNING.locked():
        return False
    torch: Any = sys.modules["torch"]
    if torch.autograd._profiler_enabled():  # noqa: SLF001 - it has no public name
        return True
    if not _has_other(torch.profiler.profile):
        return False
    gc.collect()  # a profiler that has ended stays in a reference cycle
    return _has_other(torch.profiler.profile)


def _has_other(profile: type) -> bool:
    kinds = map(type, gc.get_objects())  # isinstance would initialise lazy objects
    return any(issubclass(kind, profile) and kind.__module__ != __name__ for kind in kinds)


def _profile(**settings: Any) -> Any:
    """Create a ``torch.profiler.profile`` that ``_has_other`` recognises by its module.

    ``record_shapes``, ``profile_memory``, ``with_stack`` and ``with_flops`` stay off: each makes
    steps slower and traces larger, and stacks break the ranges of steps (pytorch/pytorch#174555).
    """
    import torch.profiler

    return type("profile", (torch.profiler.profile,), {"__module__": __name__})(**settings)
