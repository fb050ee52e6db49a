"""The processes of all tenants of a configuration: they load, run and report together."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from energy_callbacks.inference.profile.run_folder import RunFolder
from energy_callbacks.inference.profile.tenant_process import (
    TenantFailed,
    TenantProcess,
    end_processes,
    load_command,
)
from energy_callbacks.inference.records import Mode, Tenant

# Time to import a framework, build the model and run its first batch, s: twenty processes that
# share a GPU take more than a minute.
LOAD_S: Final = 300.0
# Time until a tenant that runs batches answers, s: the longest batch that is measured.
_ANSWER_S: Final = 60.0


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
        self._device, self._data = device, data
        self._variables = dict(variables)
        self._load_s = load_s
        self._processes: list[TenantProcess] = []
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
        end_processes(free)
        self._command("rest")
        loading = []
        for process, tenant in zip(self._processes, tenants, strict=True):
            command = load_command(tenant, mode, self._device, self._data)
            if command != process.loaded:
                process.send(**command)
                process.loaded = command
                loading.append(process)
        self._loaded(loading)

    def _loaded(self, loading: Sequence[TenantProcess]) -> None:
        """Wait until all have loaded or failed, and raise the first failure.

        Those that still load would have to be killed otherwise, which may disturb MPS.
        """
        failure: TenantFailed | None = None
        begin_s = time.monotonic()
        for process in loading:
            try:
                process.note = process.answer(self._load_s, since_s=begin_s).get("note", "")
            except TenantFailed as error:
                failure = failure or error
        if failure is not None:
            raise failure

    @property
    def note(self) -> str:
        """What the tenants say about how they run their models."""
        return "; ".join({one.note: None for one in self._processes if one.note})

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
        end_processes(ended)

    def _command(self, word: str) -> None:
        for process in self._processes:
            process.send(do=word)

    def _started(self, share_pct: float) -> TenantProcess:
        self._count += 1
        environment = {**self._folder.environment("tenant"), **self._variables}
        return TenantProcess(environment, share_pct, self._folder.path / f"tenant{self._count}.txt")
