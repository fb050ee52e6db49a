"""A recorder that writes known traces, to test kernel profilers without a GPU."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.profiling.frameworks.protocol import TooLargeError, WindowLimits
from energy_callbacks.profiling.kernels import select_backend
from tests.profiling.kernels.cuda_trace import GEMM, Work, trace

WORK = (Work(name=GEMM, asked_us=0.0, start_us=10.0, duration_us=6_000.0),)


class FakeRecorder:
    """Records its calls instead of kernels.

    Args:
        cost: called when a window opens and when it closes.
        document: returns the trace of a window.
        too_large: whether closing a window raises ``TooLargeError``.
        fails: method that raises: ``open``, ``step`` or ``close``.
    """

    framework = "torch"

    def __init__(
        self,
        *,
        cost: Callable[[], None] = lambda: None,
        document: Callable[[], dict[str, Any]] = lambda: trace(WORK),
        too_large: bool = False,
        fails: str = "",
    ) -> None:
        self.told: list[str] = []
        self.is_running = False
        self.path, self.max_bytes = Path(), 0
        self._cost, self._document = cost, document
        self._too_large, self._fails = too_large, fails

    def _note(self, name: str) -> None:
        self.told.append(name)
        if name == self._fails:
            raise RuntimeError(f"{name} failed")

    def open(self) -> None:
        self.is_running = True
        self._cost()
        self._note("open")

    def step(self) -> None:
        self._note("step")

    def close(self) -> Path:
        self.is_running = False
        self._cost()
        self._note("close")
        if self._too_large:
            raise TooLargeError("too large")
        target = self.path.with_suffix(".json")
        target.write_text(json.dumps(self._document()))
        return target

    def abort(self) -> None:
        self.is_running = False
        self.told.append("abort")

    def install(self, patch: pytest.MonkeyPatch) -> "FakeRecorder":
        """Makes this recorder record every window of kernel profilers."""

        def recorder(chosen: str, path: Path, limits: WindowLimits) -> FakeRecorder:
            self.path, self.max_bytes = path, limits.max_bytes
            return self

        patch.setattr(select_backend, "recorder", recorder)
        patch.setattr(select_backend, "framework", lambda: "torch")
        return self
