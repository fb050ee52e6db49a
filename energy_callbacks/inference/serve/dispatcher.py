"""Queues requests, and sends them to workers in batches."""

import math
import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from energy_callbacks.inference.records import Tenant
from energy_callbacks.inference.serve.arrivals import Arrivals
from energy_callbacks.inference.serve.batch_log import Batch, BatchLog
from energy_callbacks.inference.serve.duty import DutyGate
from energy_callbacks.inference.serve.fleet import Fleet, Worker, most_waiting
from energy_callbacks.inference.serve.pools.protocol import Done, Ended, Event, Failed, Pool, Ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a dispatcher does at a moment, as a window needs it.

    Attributes:
        tenants: the present tenants.
        workers: numbers of their workers.
        is_changing: whether a change to other tenants is under way.
        changed_s: time at which the last change was complete, s; infinite before. Then all new
            tenants have answered, and the old processes have ended, which may slow down the GPU
            until then.
        starved_s: last time at which a tenant had nothing to do because no request waited, s.
        batches: batches that ran in the window, with those that still run.
        refused: tenants that cannot be loaded.
    """

    tenants: tuple[Tenant, ...]
    workers: tuple[int, ...]
    is_changing: bool
    changed_s: float
    starved_s: float
    batches: tuple[Batch, ...]
    refused: frozenset[tuple[Tenant, ...]]


class Dispatcher:
    """Queues of requests, one for each model.

    ``run`` must run in one thread; ``request``, ``seen``, ``counts`` and ``stop`` may be called
    from any thread.

    Args:
        pool: the workers.
        arrivals: the requests for each model. Their time 0 is that of ``open``.

    Attributes:
        log: batches that have run.
        failure: the exception that has ended ``run``; ``None`` if none has.
    """

    def __init__(self, pool: Pool, arrivals: Mapping[str, Arrivals]) -> None:
        self._pool, self._arrivals = pool, dict(arrivals)
        self._lock: Final = threading.RLock()
        self._fleet: Final = Fleet(pool)
        self._queues: dict[str, deque[float]] = {model: deque() for model in arrivals}
        self._start_s = math.inf
        self._duty = self._meanwhile = 1.0
        self._asked: tuple[Tenant, ...] | None = None
        self._target: tuple[Tenant, ...] = ()
        self._changed_s = self._starved_s = -math.inf
        self._awaited: dict[int, int] = {}  # answers of workers until the change is complete
        self._arrived: Counter[str] = Counter()
        self._notes: dict[str, None] = {}
        self._returned = 0
        self._is_stopped = self._is_paused = False
        self.log = BatchLog()
        self.failure: BaseException | None = None

    def open(self) -> None:
        """Let requests arrive from now on."""
        with self._lock:
            self._start_s = self._pool.now_s()
        self._pool.wake()

    def request(self, tenants: tuple[Tenant, ...], duty: float, meanwhile: float = 1.0) -> None:
        """Begin a change to other tenants, unless they serve already.

        Args:
            tenants: the tenants.
            duty: share of time in which they work.
            meanwhile: share of time in which other tenants work until the change, or if these
                cannot be loaded.
        """
        with self._lock:
            self._duty, self._meanwhile = duty, meanwhile
            self._asked = self._target = tenants
        self._pool.wake()

    def pause(self, *, is_paused: bool) -> None:
        """Send no batches to any tenant from now on, or send them again."""
        with self._lock:
            self._is_paused = is_paused
        self._pool.wake()

    @property
    def duty(self) -> float:
        """Share of time in which the present tenants work."""
        with self._lock:
            is_wanted = self._fleet.present == self._target
            return self._duty if is_wanted else self._meanwhile

    def ahead_s(self) -> float:
        """Return for how long tenants may work after the last batch was sent, s."""
        with self._lock:
            return max((one.most_sent * one.batch_s for one in self._fleet.serving), default=0.0)

    def stop(self) -> None:
        """End ``run``."""
        self._is_stopped = True
        self._pool.wake()

    def run(self, until_s: float) -> None:
        """Serve until a time, or until ``stop``; an exception is stored, not raised."""
        try:
            while not self._is_stopped and self._pool.now_s() < until_s:
                with self._lock:
                    wake_s = self._step(self._pool.now_s())
                events = self._pool.wait(min(wake_s, until_s))
                with self._lock:
                    for event in events:
                        self._handle(event)
        except Exception as error:  # noqa: BLE001 - raised again by the thread that reads it
            self.failure = error

    @property
    def is_changing(self) -> bool:
        """Whether a change to other tenants is under way."""
        with self._lock:
            if self._asked not in (None, self._fleet.present, *self._fleet.refused):
                return True
            return self._fleet.wanted is not None

    @property
    def refused(self) -> Mapping[tuple[Tenant, ...], str]:
        """Why tenants cannot be loaded, by tenants."""
        with self._lock:
            return dict(self._fleet.refused)

    @property
    def notes(self) -> list[str]:
        """What tenants say about how they run their models."""
        with self._lock:
            return list(self._notes)

    @property
    def switches(self) -> int:
        """Number of changes of tenants, with the first tenants."""
        return self._fleet.switches

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the requests of each model: those that arrived, were answered, and wait.

        Those that wait are counted in the queue and in the batches that have not ended.
        """
        with self._lock:
            waiting = Counter({model: len(queue) for model, queue in self._queues.items()})
            for worker in self._fleet.workers:
                waiting[worker.tenant.model] += sum(len(one.arrivals_s) for one in worker.sent)
            return {
                model: {
                    "arrived": self._arrived[model],
                    "answered": len(self.log.latencies_s.get(model, ())),
                    "waiting": waiting[model],
                }
                for model in self._arrivals
            }

    @property
    def returned(self) -> int:
        """Number of requests that were sent to a worker which failed, and waited again."""
        return self._returned

    def latencies_ms(self, model: str | None = None) -> Mapping[str, float]:
        """Return quantiles of the latencies; see ``BatchLog.latencies_ms``."""
        with self._lock:
            return self.log.latencies_ms(model)

    def rates_per_s(self) -> dict[str, float | None]:
        """Return the rate that each model must serve now; ``None`` for as much as possible."""
        with self._lock:
            t_s = max(self._pool.now_s() - self._start_s, 0.0)
            return {model: one.rate_per_s(t_s) for model, one in self._arrivals.items()}

    def seen(self, start_s: float, end_s: float) -> Seen:
        """Return what happened in a window that has just ended."""
        with self._lock:
            serving = self._fleet.serving
            now_s = self._pool.now_s()
            running = [self._running(one, now_s) for one in serving if one.sent]
            self.log.forget(start_s)
            workers = tuple(one.number for one in serving if one.state != "ending")
            return Seen(
                tenants=self._fleet.present,
                workers=workers,
                is_changing=self.is_changing,
                changed_s=math.inf if self._is_incomplete(workers) else self._changed_s,
                starved_s=self._starved_s,
                batches=(*self.log.overlapping(start_s, end_s), *running),
                refused=frozenset(self._fleet.refused),
            )

    def _is_incomplete(self, serving: tuple[int, ...]) -> bool:
        return self._fleet.is_ending or any(self._awaited.get(number, 0) for number in serving)

    def _await_all(self) -> None:
        """Begin to wait for a new batch of each worker, after those that it has."""
        serving = self._fleet.serving
        self._awaited = {one.number: len(one.sent) + 1 for one in serving if one.state != "ending"}

    def _running(self, worker: Worker, now_s: float) -> Batch:
        first = worker.sent[0]
        start_s = max(first.sent_s, worker.last_end_s)
        end_s = max(start_s + worker.batch_s, now_s)
        return Batch(worker.number, worker.tenant, len(first.arrivals_s), start_s, end_s)

    def _step(self, now_s: float) -> float:
        """Send what can be sent, and return when more can be, s."""
        if self._asked is not None:
            self._fleet.request(self._asked)
            self._asked = None
        if self._fleet.progress():
            self._await_all()
            self._place_gates(now_s)
        wake_s = math.inf
        if now_s >= self._start_s:
            for worker in self._fleet.serving:
                worker.gate.set(self.duty, now_s)
            for model, arrivals in self._arrivals.items():
                self._arrive(model, arrivals, now_s)
                wake_s = min(wake_s, self._start_s + arrivals.next_s())
                if not self._is_paused:
                    wake_s = min(wake_s, self._dispatch(model, now_s))
            # An idle tenant may have finished only now; it may end then.
            self._fleet.progress()
        return wake_s

    def _place_gates(self, now_s: float) -> None:
        """Give tenants different positions in the period of their pauses."""
        serving = self._fleet.serving
        for place, worker in enumerate(serving):
            worker.gate = DutyGate(now_s, offset=place / len(serving))

    def _arrive(self, model: str, arrivals: Arrivals, now_s: float) -> None:
        arrivals.offered(most_waiting(self._fleet.serving, model), now_s - self._start_s)
        new = arrivals.until(now_s - self._start_s)
        self._queues[model].extend(self._start_s + t_s for t_s in new)
        self._arrived[model] += len(new)

    def _dispatch(self, model: str, now_s: float) -> float:
        """Send batches of a model, to idle workers first; return when a pause ends, s."""
        queue, wake_s = self._queues[model], math.inf
        workers = [
            one for one in self._fleet.serving if one.tenant.model == model and one.state == "ready"
        ]
        for worker in sorted(workers, key=lambda one: len(one.sent)):
            opens_s = worker.opens_s(now_s)
            if opens_s <= now_s and not worker.sent and queue:
                self._send(worker, queue, now_s)
            elif opens_s > now_s:
                wake_s = min(wake_s, opens_s)
        for worker in workers:
            while len(worker.sent) < worker.most_sent and len(queue) >= worker.tenant.batch:
                if worker.opens_s(now_s) > now_s:
                    break
                self._send(worker, queue, now_s)
            if not worker.sent and not queue and worker.opens_s(now_s) <= now_s:
                self._starved_s = now_s
        return wake_s

    def _send(self, worker: Worker, queue: deque[float], now_s: float) -> None:
        count = min(worker.tenant.batch, len(queue))
        worker.send(tuple(queue.popleft() for _ in range(count)), now_s)
        self._pool.send(worker.number, count)

    def _handle(self, event: Event) -> None:
        match event:
            case Ready(number, note):
                self._fleet.is_ready(number)
                if note:
                    self._notes[f"{self._fleet[number].tenant.model} {note}"] = None
                self._await_all()
            case Done(number, start_s, end_s):
                self._done(self._fleet[number], start_s, end_s)
            case Ended(number):
                self._fleet.has_ended(number)
                self._await_all()
            case Failed(number):
                tenant = self._fleet[number].tenant
                queue = self._queues.get(tenant.model)
                for sent in reversed(self._fleet.has_failed(event)):
                    assert queue is not None
                    queue.extendleft(reversed(sent.arrivals_s))
                    self._returned += len(sent.arrivals_s)

    def _done(self, worker: Worker, start_s: float, end_s: float) -> None:
        sent = worker.done(start_s, end_s)
        if self._awaited.get(worker.number, 0):
            self._awaited[worker.number] -= 1
            self._changed_s = end_s
        tenant, count = worker.tenant, len(sent.arrivals_s)
        self.log.add(Batch(worker.number, tenant, count, start_s, end_s), sent.arrivals_s)
        self._arrivals[tenant.model].answered(count, end_s - self._start_s)
