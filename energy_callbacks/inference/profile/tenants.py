"""Starts the processes of tenants, gives them commands, and reads their answers."""

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

from energy_callbacks.inference.profile.run_folder import SHARE, RunFolder
from energy_callbacks.inference.records import Mode, Status, Tenant

# Time to import a framework, build the model and run its first batch, s: twenty processes that
# share a GPU take more than a minute.
LOAD_S: Final = 300.0
# Time until a tenant that runs batches answers, s: the longest batch that is measured.
_ANSWER_S: Final = 60.0
# Time for processes to end after their input was closed, s.
_END_S: Final = 5.0
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


class _Process:
    """The process of one tenant, whose share cannot change.

    Attributes:
        share_pct: its share, in percent.
        loaded: the last command ``load``.
    """

    def __init__(self, environment: Mapping[str, str], share_pct: float, log: Path) -> None:
        self.share_pct: Final = share_pct
        self.loaded: dict[str, Any] = {}
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
                self._process.wait(_END_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _how_it_ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        code = self._process.returncode
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = f"signal {-code}"
            with suppress(ValueError):
                how = signal.Signals(-code).name
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"a tenant ended ({how}): {lines[-1] if lines else 'without a message'}"


class TenantGroup:
    """The processes of all tenants; processes are used again for tenants with the same share.

    Args:
        folder: the profile's folder.
        device: PyTorch's name of the device.
        data: folder of images; ``None`` for synthetic images.
        variables: more environment variables of the processes.
        load_s: time after which a tenant that does not load is given up, s.
    """

    def __init__(
        self,
        folder: RunFolder,
        device: str,
        data: Path | None,
        variables: Mapping[str, str],
        load_s: float = LOAD_S,
    ) -> None:
        self._folder = folder
        self._device, self._data = device, None if data is None else str(data.resolve())
        self._variables = dict(variables)
        self._load_s = load_s
        self._processes: list[_Process] = []
        self._count = 0

    def load(self, tenants: Sequence[Tenant], mode: Mode) -> None:
        """Let one process per tenant load its model; processes that are not needed end.

        Raises:
            TenantFailed: if a process cannot.
        """
        free = list(self._processes)
        self._processes = []
        for tenant in tenants:
            same = next((one for one in free if one.share_pct == tenant.share_pct), None)
            if same is not None:
                free.remove(same)
            self._processes.append(same or self._started(tenant.share_pct))
        _end(free)
        self._command("rest")
        loading = []
        for process, tenant in zip(self._processes, tenants, strict=True):
            command = {
                "do": "load",
                "model": tenant.model,
                "batch": tenant.batch,
                "share_pct": tenant.share_pct,
                "mode": mode,
                "device": self._device,
                "data": self._data,
            }
            if command != process.loaded:
                process.send(**command)
                process.loaded = command
                loading.append(process)
        self._loaded(loading)

    def _loaded(self, loading: Sequence[_Process]) -> None:
        """Wait until all have loaded or failed, and raise the first failure.

        Those that still load would have to be killed otherwise, which may disturb MPS.
        """
        failure: TenantFailed | None = None
        begin_s = time.monotonic()
        for process in loading:
            try:
                process.answer(self._load_s, since_s=begin_s)
            except TenantFailed as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def run(self) -> None:
        """Let all tenants run batches."""
        self._command("run")

    def ends_s(self) -> list[list[float]]:
        """Return the ends of the batches of each tenant since the last call; see ``tenant_main``.

        Raises:
            TenantFailed: if a process does not answer.
        """
        self._command("report")
        return [process.answer(_ANSWER_S)["ends_s"] for process in self._processes]

    def end(self) -> None:
        """End all processes."""
        ended, self._processes = self._processes, []
        _end(ended)

    def _command(self, word: str) -> None:
        for process in self._processes:
            process.send(do=word)

    def _started(self, share_pct: float) -> _Process:
        self._count += 1
        environment = {**self._folder.environment("tenant"), **self._variables}
        return _Process(environment, share_pct, self._folder.path / f"tenant{self._count}.txt")


def _end(processes: Sequence[_Process]) -> None:
    for process in processes:
        process.close()
    end_s = time.monotonic() + _END_S
    for process in processes:
        process.wait(max(end_s - time.monotonic(), 0.0))
