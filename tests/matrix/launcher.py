"""Simulates jobs: no programs, virtual time, and a known power of each job."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from energy_callbacks.core.signals import SignalHold
from energy_callbacks.matrix import attempts
from energy_callbacks.matrix.engines import local
from tests.report.journals import Attempt, Stretch, write

POWER_W = 400.0
TRAIN = Stretch(phase="train", duration_s=5.0, power_w={"gpu0": POWER_W})


class Clock:
    """Replaces the module ``time``; time passes only in ``sleep``."""

    def __init__(self) -> None:
        self.now_s = 1.79e9

    def time(self) -> float:
        """Return seconds, as ``time.time`` does."""
        return self.now_s

    monotonic = time

    def sleep(self, duration_s: float) -> None:
        """Let time pass."""
        self.now_s += duration_s


class Launcher:
    """Replaces ``local.launch``; the commands are those of ``lab.JOB``.

    A job writes the lines and exit code of the real program, and a run folder.

    Attributes:
        can_fail: if false, every job succeeds.
    """

    def __init__(self) -> None:
        self.can_fail = True
        self.clock = Clock()

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Simulate jobs from now on."""
        patch.setattr(local, "launch", self.launch)
        for module in (local, attempts):
            patch.setattr(module, "time", self.clock)
        patch.setattr(SignalHold, "wait", self._wait)

    def _wait(self, timeout_s: float) -> list[int]:
        self.clock.sleep(timeout_s)
        return []

    def launch(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: Path
    ) -> "Played":
        """Begin a job."""
        name, rest_s, code = words[-3:]
        with (cwd / "begun").open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")
        output.write_text(f"job {name}\n", encoding="utf-8")
        tags = dict(word[6:].split("=", 1) for word in words if word.startswith("--tag="))
        attempt = Attempt(run_id=name, tags=tags, stretches=(TRAIN,), unix_s=self.clock.now_s)
        write(Path(words[words.index("--out") + 1]), attempt)
        return Played(
            name=name,
            clock=self.clock,
            rest_s=float(rest_s),
            code=int(code) if self.can_fail else 0,
            mask=env.get("CUDA_VISIBLE_DEVICES") or "-",
            log=cwd / "log",
        )


class Played:
    """Replaces the process of a job."""

    def __init__(
        self, *, name: str, clock: Clock, rest_s: float, code: int, mask: str, log: Path
    ) -> None:
        self._name, self._clock, self._code = name, clock, code
        self._mask, self._log = mask, log
        self._begun_s = clock.now_s
        self._end_s = clock.now_s + rest_s
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code; ``None`` before its end."""
        if self.returncode is None and self._clock.now_s >= self._end_s:
            self.returncode = self._code
            with self._log.open("a", encoding="utf-8") as file:
                file.write(f"{self._name} {self._begun_s} {self._clock.now_s} {self._mask}\n")
        return self.returncode
