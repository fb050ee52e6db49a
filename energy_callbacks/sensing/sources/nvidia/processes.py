"""The processes on a card now, with their memory."""

from dataclasses import dataclass
from typing import Any

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.sensing import time_limit
from energy_callbacks.sensing.sources.nvidia.source import session

_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CardProcess:
    """A process on a card.

    Attributes:
        pid: as this machine, or the host of this container, counts processes.
        name: of its program; ``None`` if it is not seen from here.
        memory_bytes: that it holds on the card; ``None`` if the driver does not say.
    """

    pid: int
    name: str | None
    memory_bytes: int | None


def card_processes(uuid: str) -> tuple[CardProcess, ...]:
    """Processes on a card, most memory first; empty if the driver does not list them.

    Args:
        uuid: of the card.
    """
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
            for one in _asked(nvml, ask, handle)
        }
    found = (CardProcess(pid=p, name=_name(p), memory_bytes=held) for p, held in running.items())
    return tuple(sorted(found, key=lambda one: one.memory_bytes or 0, reverse=True))


def _asked(nvml: Any, ask: Any, handle: Any) -> Any:
    try:
        return ask(handle)
    except nvml.NVMLError:
        return ()  # not supported: a MIG card, a virtual one


def _name(pid: int) -> str | None:
    import psutil

    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return None
