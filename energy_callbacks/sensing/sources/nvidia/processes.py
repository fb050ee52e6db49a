"""Lists the processes that use a card, with their memory."""

from dataclasses import dataclass
from typing import Any

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.sensing import time_limit
from energy_callbacks.sensing.sources.nvidia.card import answer
from energy_callbacks.sensing.sources.nvidia.source import session

# Time limit for listing the processes of a card, s.
_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CardProcess:
    """A process that uses a card.

    Attributes:
        pid: process number as the driver reports it; in a container, it may be the number that the
            process has on the host.
        name: name of the program; ``None`` if it cannot be read, as for a process outside of this
            container.
        memory_bytes: memory of the card that the process uses; ``None`` if the driver does not
            report it.
    """

    pid: int
    name: str | None
    memory_bytes: int | None


def card_processes(uuid: str) -> tuple[CardProcess, ...]:
    """Return the processes on a card, most memory first; empty if they cannot be listed."""
    try:
        return time_limit.within(_PATIENCE_S, lambda: _found(uuid), f"processes of {uuid}")
    except (SourceUnavailable, TimeoutError):
        return ()


def _found(uuid: str) -> tuple[CardProcess, ...]:
    with session() as nvml:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        running = {
            one.pid: one.usedGpuMemory
            for ask in (
                nvml.nvmlDeviceGetGraphicsRunningProcesses,
                nvml.nvmlDeviceGetComputeRunningProcesses,
                nvml.nvmlDeviceGetMPSComputeRunningProcesses,
            )
            # Cards with MIG and virtual cards do not support every call; a call that fails counts
            # as an empty list.
            for one in answer(nvml, ask, handle, otherwise=())
        }
    found = (CardProcess(pid=p, name=_name(p), memory_bytes=held) for p, held in running.items())
    return tuple(sorted(found, key=lambda one: one.memory_bytes or 0, reverse=True))


def pids_on(nvml: Any, uuid: str) -> set[int]:
    """Return the pids of the processes that compute on a card, as the driver reports them.

    The result is empty if the processes cannot be listed.

    Args:
        nvml: the module ``pynvml``, initialised.
        uuid: UUID of the card.
    """
    handle = answer(nvml, nvml.nvmlDeviceGetHandleByUUID, uuid)
    if handle is None:
        return set()
    lists = (
        nvml.nvmlDeviceGetComputeRunningProcesses,
        nvml.nvmlDeviceGetMPSComputeRunningProcesses,
    )
    return {one.pid for ask in lists for one in answer(nvml, ask, handle, otherwise=())}


def _name(pid: int) -> str | None:
    import psutil

    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return None
