"""The workers of the present tenants, and the change to other tenants while requests are served.

::

    request ──> new workers load beside the old ones ──> switch ──> old workers end
                      │ out of memory
                      └──> old workers end ──> new workers load ──> switch
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from energy_callbacks.inference.profile.tenant_process import TenantFailed
from energy_callbacks.inference.records import Status, Tenant
from energy_callbacks.inference.serve.duty import DutyGate
from energy_callbacks.inference.serve.pools.protocol import Failed, Pool

# A tenant is started again this often after crashes; then serving ends with an error.
_RESTARTS: Final = 3
# A worker has at least two full batches, and as many as take this time, s, so that it does not wait
# for the dispatcher: Python's interpreter lock may delay it by 5 ms for each thread that computes
# (``sys.getswitchinterval``).
AHEAD_S: Final = 0.02
# Assumed time of the first batch of a worker, s.
_FIRST_S: Final = 0.01


class Sent(NamedTuple):
    """A batch that a worker has not finished.

    Attributes:
        arrivals_s: arrivals of its requests, s.
        sent_s: time at which it was sent, s.
    """

    arrivals_s: tuple[float, ...]
    sent_s: float


@dataclass(slots=True)
class Worker:
    """A worker and its tenant.

    Attributes:
        number: its number in the pool.
        tenant: its tenant; the batch is the largest one that it is sent.
        gate: its pauses.
        loaded_batch: largest batch that it can run.
        state: ``loading``: it cannot run batches yet, or not at present; ``ready``: it could;
            ``ending``: it gets no more batches.
        is_serving: whether its tenant is one of the present configuration.
        sent: its batches, oldest first.
        batch_s: duration of its last batch, s.
        last_end_s: end of its last batch, s.
    """

    number: int
    tenant: Tenant
    gate: DutyGate
    loaded_batch: int
    state: Literal["loading", "ready", "ending"] = "loading"
    is_serving: bool = False
    sent: deque[Sent] = field(default_factory=deque)
    batch_s: float = _FIRST_S
    last_end_s: float = 0.0

    @property
    def most_sent(self) -> int:
        """Number of batches that it may have at once."""
        return 1 + max(math.ceil(AHEAD_S / max(self.batch_s, 1e-4)), 1)

    def send(self, arrivals_s: tuple[float, ...], now_s: float) -> None:
        """Note a batch that is sent."""
        self.sent.append(Sent(arrivals_s, now_s))

    def done(self, start_s: float, end_s: float) -> Sent:
        """Note the end of the oldest batch, and return it."""
        self.batch_s, self.last_end_s = end_s - start_s, end_s
        self.gate.use(self.batch_s, end_s)
        return self.sent.popleft()

    def opens_s(self, now_s: float) -> float:
        """Return when it may be sent a batch; see ``DutyGate.opens_s``."""
        return self.gate.opens_s(now_s, len(self.sent) * self.batch_s)


class Fleet:
    """All workers.

    Args:
        pool: runs them.

    Attributes:
        present: the tenants that serve.
        wanted: the tenants of the change that is under way; ``None`` if there is none.
        refused: why tenants cannot be loaded, by tenants.
        switches: number of changes so far, with the first tenants.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool: Final = pool
        self._workers: dict[int, Worker] = {}
        self._chosen: list[tuple[Worker, Tenant]] = []
        self._missing: list[Tenant] = []
        self._count = 0
        self._crashes = 0
        self._before: tuple[Tenant, ...] = ()
        self.present: tuple[Tenant, ...] = ()
        self.wanted: tuple[Tenant, ...] | None = None
        self.refused: dict[tuple[Tenant, ...], str] = {}
        self.switches = 0

    def __getitem__(self, number: int) -> Worker:
        return self._workers[number]

    @property
    def serving(self) -> list[Worker]:
        """The workers of the present tenants, in the order of ``present``."""
        found = [one for one in self._workers.values() if one.is_serving]
        return sorted(found, key=lambda one: self._place(one.tenant))

    @property
    def workers(self) -> list[Worker]:
        """All workers, also those that load or end."""
        return list(self._workers.values())

    @property
    def is_ending(self) -> bool:
        """Whether workers have still to end."""
        return any(one.state == "ending" for one in self._workers.values())

    def _place(self, tenant: Tenant) -> int:
        return self.present.index(tenant) if tenant in self.present else len(self.present)

    def request(self, tenants: tuple[Tenant, ...]) -> None:
        """Begin a change to other tenants; a change that is under way is given up."""
        if tenants not in self.refused and tenants != self._goal:
            self._begin(tenants)

    @property
    def _goal(self) -> tuple[Tenant, ...]:
        return self.present if self.wanted is None else self.wanted

    def _begin(self, tenants: tuple[Tenant, ...]) -> None:
        """Find workers for the wanted tenants, and start those that are missing."""
        self.wanted = tenants
        free = [one for one in self._workers.values() if one.state != "ending"]
        chosen: dict[int, Worker] = {}
        wanted = list(enumerate(tenants))
        for is_same in (_is_equal, _has_model_and_share):
            for place, tenant in wanted:
                found = next((one for one in free if is_same(one, tenant)), None)
                if place not in chosen and found is not None:
                    chosen[place] = found
                    free.remove(found)
        self._chosen = [(chosen[place], tenant) for place, tenant in wanted if place in chosen]
        self._missing = [tenant for place, tenant in wanted if place not in chosen]
        self._end_all(one for one in free if not one.is_serving)
        self._start_missing()

    def _start_missing(self) -> None:
        for tenant in self._missing:
            self._count += 1
            gate = DutyGate(self._pool.now_s())
            worker = Worker(self._count, tenant, gate, tenant.batch)
            self._workers[self._count] = worker
            self._chosen.append((worker, tenant))
            self._pool.start(self._count, tenant)
        self._missing = []

    def progress(self) -> bool:
        """Continue a change, and return whether the present tenants have changed now."""
        for worker in [one for one in self._workers.values() if one.state == "ending"]:
            if not worker.sent and worker.is_serving:
                worker.is_serving = False
                self._pool.end(worker.number)
        if self.wanted is None:
            return False
        if self._missing:
            chosen = [worker.number for worker, _ in self._chosen]
            if all(number in chosen for number in self._workers):
                self._start_missing()
            return False
        if any(worker.state != "ready" for worker, _ in self._chosen):
            return False
        self._switch(self.wanted)
        return True

    def _switch(self, tenants: tuple[Tenant, ...]) -> None:
        chosen = {worker.number for worker, _ in self._chosen}
        self._end_all(one for one in self._workers.values() if one.number not in chosen)
        for worker, tenant in self._chosen:
            worker.is_serving, worker.tenant = True, tenant
            if tenant.batch > worker.loaded_batch:
                worker.state, worker.loaded_batch = "loading", tenant.batch
                self._pool.load(worker.number, tenant)
        if tenants != self.present:
            self._before, self.present = self.present, tenants
            self.switches += 1
        self.wanted = None

    def _end_all(self, workers: Iterator[Worker]) -> None:
        """End workers, those that serve after their batches."""
        for worker in list(workers):
            if worker.state == "ending":
                continue
            worker.state = "ending"
            if not worker.is_serving:
                self._pool.end(worker.number)

    def is_ready(self, number: int) -> None:
        """A worker has loaded its tenant."""
        worker = self._workers[number]
        if worker.state == "loading":
            worker.state = "ready"

    def has_ended(self, number: int) -> None:
        """A worker has ended."""
        del self._workers[number]

    def has_failed(self, failed: Failed) -> list[Sent]:
        """A worker has ended by a fault; return its batches, whose requests must wait again.

        Raises:
            TenantFailed: if the present tenants cannot be kept.
        """
        worker = self._workers.pop(failed.worker)
        if worker.state != "ending":
            if worker.state == "loading" and not self._is_wanted(worker):
                self._begin(self._goal)
            elif worker.state == "loading":
                self._not_loaded(worker, failed.status, failed.note)
            else:
                self._crashed(failed.status, failed.note)
        return list(worker.sent)

    def _is_wanted(self, worker: Worker) -> bool:
        """Return whether a worker loads a tenant of the present goal, not of the one before."""
        wanted = [tenant.batch for one, tenant in self._chosen if one is worker]
        return worker.loaded_batch in wanted

    def _not_loaded(self, worker: Worker, status: Status, note: str) -> None:
        chosen = {one.number for one, _ in self._chosen}
        others = [one for one in self._workers.values() if one.number not in chosen]
        if status == "oom" and self.wanted is not None and others:
            self._chosen = [pair for pair in self._chosen if pair[0] is not worker]
            self._missing.append(worker.tenant)
            self._end_all(iter(others))
            return
        self.refused[self._goal] = note
        before = self.present if self._goal != self.present else self._before
        if not before:
            raise TenantFailed(status, note)
        self._begin(before)

    def _crashed(self, status: Status, note: str) -> None:
        self._crashes += 1
        if self._crashes > _RESTARTS:
            raise TenantFailed(status, f"{note}; tenants have crashed {self._crashes} times")
        self._begin(self._goal)


def _is_equal(worker: Worker, tenant: Tenant) -> bool:
    return worker.tenant == tenant


def _has_model_and_share(worker: Worker, tenant: Tenant) -> bool:
    one = worker.tenant
    return (one.model, one.share_pct) == (tenant.model, tenant.share_pct)


def most_waiting(workers: Sequence[Worker], model: str) -> int:
    """Return how many samples of a model the workers may have, and one more batch for each."""
    own = [one for one in workers if one.tenant.model == model]
    return sum(one.tenant.batch * (one.most_sent + 1) for one in own)
