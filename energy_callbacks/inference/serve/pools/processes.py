"""Workers that are processes of a GPU or CPU; see ``Pool``."""

import math
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from energy_callbacks.inference.profile.open_device import OpenDevice
from energy_callbacks.inference.profile.tenant_process import (
    END_S,
    TenantFailed,
    TenantProcess,
    end_processes,
    load_command,
)
from energy_callbacks.inference.records import Mode, Tenant
from energy_callbacks.inference.serve.pools.protocol import Done, Ended, Event, Failed, Ready

# Time until a batch has ended, s: as for the longest batch of a profile.
_BATCH_S: Final = 60.0
# How often it is checked whether processes that end have exited, s.
_LOOK_S: Final = 0.02


@dataclass(slots=True)
class _Worker:
    process: TenantProcess
    due_s: list[float] = field(default_factory=list)  # latest time of each answer that is awaited
    is_ending: bool = False


class ProcessPool:
    """One process per worker, with the share of its tenant.

    A process that ends needs a second or two to release its GPU. ``wait`` reports its exit, and
    does not block until then, so that the other workers get their batches.

    Args:
        device: the GPU or CPU, which is open.
        data: folder of images; ``None`` for synthetic images.
        mode: inference or training.
        load_s: time after which a tenant that does not load is given up, s.
    """

    def __init__(self, device: OpenDevice, *, data: Path | None, mode: Mode, load_s: float) -> None:
        self._mode: Mode = mode
        self._device, self._data, self._load_s = device, data, load_s
        self._workers: dict[int, _Worker] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)

    def close(self) -> None:
        """End all processes; no other method may be called then."""
        end_processes([one.process for one in self._workers.values()])
        self._workers = {}
        self._selector.close()
        self._woken.close()
        self._wake.close()

    @property
    def pids(self) -> Mapping[int, int]:
        """Process id of each worker."""
        workers = list(self._workers.items())  # another thread may add and remove some meanwhile
        return {number: one.process.pid for number, one in workers}

    def now_s(self) -> float:
        """See ``Pool``; the time of batches is that of the same clock in the tenants."""
        return time.monotonic()

    def wake(self) -> None:
        """See ``Pool``."""
        with suppress(BlockingIOError):  # the buffer is full: ``wait`` will end
            self._wake.send(b"1")

    def start(self, worker: int, tenant: Tenant) -> None:
        """See ``Pool``."""
        environment = {**self._device.folder.environment("tenant"), **self._device.variables}
        log = self._device.folder.path / f"tenant{worker}.txt"
        process = TenantProcess(environment, tenant.share_pct, log)
        self._workers[worker] = _Worker(process)
        self._selector.register(process, selectors.EVENT_READ, worker)
        self.load(worker, tenant)

    def load(self, worker: int, tenant: Tenant) -> None:
        """See ``Pool``."""
        command = load_command(tenant, self._mode, self._device.torch_device, self._data)
        self._command(worker, self._load_s, command)

    def send(self, worker: int, samples: int) -> None:
        """See ``Pool``."""
        self._command(worker, _BATCH_S, {"do": "batch", "samples": samples})

    def _command(self, worker: int, limit_s: float, command: dict[str, Any]) -> None:
        one = self._workers[worker]
        one.process.send(**command)
        one.due_s.append(time.monotonic() + limit_s)

    def end(self, worker: int) -> None:
        """See ``Pool``."""
        one = self._workers.get(worker)
        if one is None:
            return
        one.is_ending = True
        self._selector.unregister(one.process)  # its exit is polled
        # A tenant that still loads ends after that.
        one.due_s = [max([*one.due_s, time.monotonic() + END_S])]
        one.process.close()

    def wait(self, until_s: float) -> Sequence[Event]:
        """See ``Pool``."""
        due_s = [one.due_s[0] for one in self._workers.values() if one.due_s]
        now_s = time.monotonic()
        if any(one.is_ending for one in self._workers.values()):
            due_s.append(now_s + _LOOK_S)
        left_s = min([until_s, *due_s]) - now_s
        ready = self._selector.select(None if left_s == math.inf else max(left_s, 0.0))
        events: list[Event] = []
        for key, _ in ready:
            if key.data is None:
                self._woken.recv(65536)
            else:
                events += self._events(key.data)
        return [*events, *self._exited(), *self._late()]

    def _events(self, worker: int) -> list[Event]:
        """Return what a worker has answered."""
        one = self._workers[worker]
        try:
            answers = one.process.arrived()
        except TenantFailed as failure:
            self._remove(worker)
            return [Failed(worker, failure.status, failure.note)]
        del one.due_s[: len(answers)]
        return [
            Ready(worker, each["note"])
            if "ready" in each
            else Done(worker, each["start_s"], each["end_s"])
            for each in answers
        ]

    def _exited(self) -> list[Event]:
        """Return the ends of workers whose processes have exited."""
        ended = [
            number
            for number, one in self._workers.items()
            if one.is_ending and one.process.has_exited
        ]
        for worker in ended:
            self._remove(worker)
        return [Ended(worker) for worker in ended]

    def _late(self) -> list[Event]:
        """Kill workers that have not answered, or not ended, in time."""
        now_s = time.monotonic()
        late = {n: one for n, one in self._workers.items() if one.due_s and one.due_s[0] <= now_s}
        for worker in late:
            self._remove(worker)
        return [
            Ended(worker)
            if one.is_ending
            else Failed(worker, "timeout", "a tenant did not answer in time")
            for worker, one in late.items()
        ]

    def _remove(self, worker: int) -> None:
        """Forget a worker, and kill its process if it has not exited."""
        one = self._workers.pop(worker)
        if not one.is_ending:
            self._selector.unregister(one.process)
        one.process.close()
        one.process.wait(0.0)
