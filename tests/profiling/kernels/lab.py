"""A recorder that writes known traces, and what else a kernel profiler needs without a GPU."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.profiling.frameworks import select_backend
from energy_callbacks.profiling.frameworks.protocol import TooLargeError
from tests.profiling.kernels.cuda_trace import GEMM, Work, trace

WORK = (Work(name=GEMM, asked_us=0.0, start_us=10.0, duration_us=6_000.0),)


class FakeRecorder:
    """Remembers what it was told; costs as much time as it is made to.

    Args:
        cost: called when a window opens and when it closes.
        size: of what it claims to have written, in bytes.
        fails: when: ``open``, ``step`` or ``close``.
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
        """Every window of a kernel profiler is recorded by this one."""

        def recorder(chosen: str, path: Path, *, max_bytes: int, **_: Any) -> FakeRecorder:
            self.path, self.max_bytes = path, max_bytes
            return self

        patch.setattr(select_backend, "recorder", recorder)
        patch.setattr(select_backend, "framework", lambda: "torch")
        return self
