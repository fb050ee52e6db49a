"""The process of a tenant: commands to it, and its answers."""

import json
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from energy_callbacks.inference.profile.run_folder import SHARE
from energy_callbacks.inference.records import Mode, Status, Tenant

# Time for a process to end after its input was closed, s.
END_S: Final = 5.0
_MODULE: Final = "energy_callbacks.inference.profile.tenant_main"


class TenantFailed(Exception):
    """A tenant ran out of memory, did not answer in time, or crashed.

    Args:
        status: the status of the row.
        note: what happened.
    """

    def __init__(self, status: Status, note: str) -> None:
        super().__init__(note)
        self.status: Final[Status] = status
        self.note: Final = note


class TenantProcess:
    """The process of one tenant, whose share cannot change.

    Args:
        environment: its environment variables.
        share_pct: its share, in percent.
        log: file of its standard error.

    Attributes:
        share_pct: its share, in percent.
        loaded: the last command ``load``.
        note: what the tenant said about how it runs its model.
    """

    def __init__(self, environment: Mapping[str, str], share_pct: float, log: Path) -> None:
        self.share_pct: Final = share_pct
        self.loaded: dict[str, Any] = {}
        self.note = ""
        self._log = log
        self._text = b""
        with log.open("wb") as file:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                bufsize=0,
                env={**environment, SHARE: f"{share_pct:g}"},
                start_new_session=True,  # Ctrl-C reaches only the profile, which ends its tenants
            )

    def send(self, **command: Any) -> None:
        """Send a command; if the process has ended, ``answer`` reports it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(command).encode() + b"\n")

    def answer(self, timeout_s: float, since_s: float | None = None) -> dict[str, Any]:
        """Return the next answer.

        Args:
            timeout_s: longest time to wait, s.
            since_s: monotonic time from which it counts; ``None`` for now.

        Raises:
            TenantFailed: if there is none in time, or if it reports a fault.
        """
        assert self._process.stdout is not None
        end_s = (time.monotonic() if since_s is None else since_s) + timeout_s
        while b"\n" not in self._text:
            left_s = max(end_s - time.monotonic(), 0.0)
            if not select.select([self._process.stdout], [], [], left_s)[0]:
                raise TenantFailed("timeout", f"a tenant did not answer within {timeout_s:g} s")
            more = self._process.stdout.read(65536)
            if not more:
                raise TenantFailed("error", self._how_it_ended())
            self._text += more
        return self._first_line()

    def arrived(self) -> list[dict[str, Any]]:
        """Return the answers that have arrived; ``fileno`` tells when there are any.

        Raises:
            TenantFailed: if the process has ended, or reports a fault.
        """
        assert self._process.stdout is not None
        if b"\n" not in self._text:
            more = self._process.stdout.read(65536)
            if not more:
                raise TenantFailed("error", self._how_it_ended())
            self._text += more
        answers = []
        while b"\n" in self._text:
            answers.append(self._first_line())
        return answers

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def has_exited(self) -> bool:
        """Whether the process has exited; it does not wait."""
        return self._process.poll() is not None

    def fileno(self) -> int:
        """Return the descriptor of the answers, for ``select``."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def _first_line(self) -> dict[str, Any]:
        line, _, self._text = self._text.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        if "status" in found:
            raise TenantFailed(found["status"], found["note"])
        return found

    def close(self) -> None:
        """Close the process's input, so that it ends after its batch; do not wait for it."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def wait(self, timeout_s: float) -> None:
        """Wait for the end of the process, and kill it if that takes too long."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # the driver may hold a killed process
                self._process.wait(END_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _how_it_ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        code = self._process.returncode
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = f"signal {-code}"
            with suppress(ValueError):
                how = signal.Signals(-code).name
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"a tenant ended ({how}): {lines[-1] if lines else 'without a message'}"


def load_command(tenant: Tenant, mode: Mode, device: str, data: Path | None) -> dict[str, Any]:
    """Return the command that lets a process load a tenant.

    Args:
        tenant: the tenant.
        mode: inference or training.
        device: PyTorch's name of the device.
        data: folder of images; ``None`` for synthetic images.
    """
    return {
        "do": "load",
        "model": tenant.model,
        "batch": tenant.batch,
        "share_pct": tenant.share_pct,
        "mode": mode,
        "device": device,
        "data": None if data is None else str(data.resolve()),
    }


def end_processes(processes: Sequence[TenantProcess]) -> None:
    """Let processes end, and kill those that take too long."""
    for process in processes:
        process.close()
    end_s = time.monotonic() + END_S
    for process in processes:
        process.wait(max(end_s - time.monotonic(), 0.0))
