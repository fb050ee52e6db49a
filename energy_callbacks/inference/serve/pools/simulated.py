"""Workers of a simulated GPU, in virtual time."""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from energy_callbacks.inference.records import Mode, Tenant
from energy_callbacks.inference.serve.pools.protocol import Done, Ended, Event, Failed, Ready
from energy_callbacks.inference.simulated.gpu import OutOfMemory, SimulatedGpu
from energy_callbacks.inference.simulated.state import SENSOR_S, STEP_S

# Time in which a process imports PyTorch, and loads and warms up a model, s; and in which a process
# that runs prepares a larger batch. Assumed, of the order of that of two processes on an H200.
LOAD_S: Final = 6.0
_RELOAD_S: Final = 0.3
# Largest step in which the GPU advances, s: dispatchers send work for this time ahead.
_STEP_S: Final = 0.02


@dataclass(slots=True)
class _Worker:
    tenant: Tenant
    ready_s: float | None
    left: deque[float] = field(default_factory=deque)  # samples left of each batch
    sizes: deque[int] = field(default_factory=deque)
    start_s: float = 0.0
    is_ending: bool = False

    @property
    def present(self) -> Tenant:
        """The tenant with the number of samples of the batch that runs."""
        return replace(self.tenant, batch=self.sizes[0]) if self.sizes else self.tenant

    @property
    def samples(self) -> float:
        """Samples left of the batch that runs and of the next ones that are equal to it."""
        is_equal = all(size == self.sizes[0] for size in self.sizes)
        return sum(self.left) if is_equal else self.left[0]


class SimulatedPool:
    """Workers whose batches take the time that a simulated GPU needs; see ``Pool``.

    The GPU does what the workers with batches need at the same time. Its energy over time is kept
    for ``energy_j``.

    Args:
        gpu: the GPU, which must not be advanced by others.
        mode: inference or training.
        load_s: time to load a tenant, s.
    """

    def __init__(self, gpu: SimulatedGpu, mode: Mode = "infer", load_s: float = LOAD_S) -> None:
        self._mode: Mode = mode
        self._gpu, self._load_s = gpu, load_s
        self._workers: dict[int, _Worker] = {}
        self._events: list[Event] = []
        self._running: tuple[tuple[Tenant, ...], bool] | None = None
        self._times_s, self._energies_j = [gpu.t_s], [gpu.energy_j]
        self._readings: list[tuple[float, float]] = []

    def now_s(self) -> float:
        """See ``Pool``."""
        return self._gpu.t_s

    def wake(self) -> None:
        """See ``Pool``; there is one thread only."""

    def start(self, worker: int, tenant: Tenant) -> None:
        """See ``Pool``."""
        new = _Worker(tenant, self.now_s() + self._load_s)
        self._workers[worker] = new
        self._check_memory(worker)

    def load(self, worker: int, tenant: Tenant) -> None:
        """See ``Pool``."""
        one = self._workers[worker]
        one.tenant, one.ready_s = tenant, self.now_s() + _RELOAD_S
        self._check_memory(worker)

    def _check_memory(self, worker: int) -> None:
        """Let a worker fail if it does not fit into the memory beside the others."""
        try:
            self._run(tuple(one.tenant for one in self._workers.values()), is_waiting=True)
        except OutOfMemory as error:
            del self._workers[worker]
            self._running = None
            self._events.append(Failed(worker, "oom", str(error)))

    def send(self, worker: int, samples: int) -> None:
        """See ``Pool``."""
        one = self._workers[worker]
        if not one.left:
            one.start_s = self.now_s()
        one.left.append(float(samples))
        one.sizes.append(samples)

    def end(self, worker: int) -> None:
        """See ``Pool``."""
        if worker in self._workers:
            self._workers[worker].is_ending = True

    def wait(self, until_s: float) -> Sequence[Event]:
        """See ``Pool``."""
        # At least one step passes, so that rounding errors of times cannot stop the clock.
        has_passed = False
        while not self._due() and not (has_passed and until_s <= self.now_s()):
            self._advance(until_s)
            has_passed = True
        events, self._events = self._events, []
        return events

    def _due(self) -> bool:
        for number, one in list(self._workers.items()):
            if one.is_ending and not one.left:
                del self._workers[number]
                self._events.append(Ended(number))
            elif one.ready_s is not None and one.ready_s <= self.now_s() + STEP_S / 2.0:
                one.ready_s = None
                self._events.append(Ready(number))
        return bool(self._events)

    def _advance(self, until_s: float) -> None:
        """Let time pass until a batch may have ended, and note the batches that have."""
        busy = {number: one for number, one in self._workers.items() if one.left}
        tenants = tuple(one.present for one in (busy or self._workers).values())
        self._run(tenants, is_waiting=not busy)
        begin_s = self.now_s()
        ends_s = [one.ready_s for one in self._workers.values() if one.ready_s is not None]
        ends_s += [until_s, begin_s + _STEP_S] if busy else [until_s]
        end_s = min(ends_s)
        steps = math.ceil((end_s - begin_s) / STEP_S - 1e-6)
        # No worker may run out of work within the step: the dispatcher can send more before that.
        steps = min(steps, math.floor(self._shortest_s(list(busy.values())) / STEP_S))
        passed = self._gpu.advance(max(steps, 1) * STEP_S)
        self._times_s.append(self._gpu.t_s)
        self._energies_j.append(self._gpu.energy_j)
        last = math.floor(self._gpu.t_s / SENSOR_S + 1e-6)
        first = last - len(passed.readings_w) + 1
        self._readings += [(at * SENSOR_S, w) for at, w in enumerate(passed.readings_w, first)]
        for (number, one), samples in zip(busy.items(), passed.samples, strict=False):
            self._work(number, one, samples, begin_s, passed.duration_s)

    def _shortest_s(self, busy: Sequence[_Worker]) -> float:
        """Return the time until the first worker has no such batch, at the present clock, s."""
        rates = self._gpu.rates_per_s
        times = [one.samples / max(rate, 1e-9) for one, rate in zip(busy, rates, strict=False)]
        return min(times, default=1e9)

    def _work(
        self, number: int, one: _Worker, samples: float, begin_s: float, duration_s: float
    ) -> None:
        """Note the batches that have ended while ``samples`` samples were processed."""
        done = 0.0
        while one.left and samples - done >= one.left[0] - 1e-6:
            done += one.left.popleft()
            one.sizes.popleft()
            end_s = begin_s + min(done / samples, 1.0) * duration_s
            self._events.append(Done(number, one.start_s, end_s))
            one.start_s = end_s
        if one.left:
            one.left[0] -= samples - done

    def _run(self, tenants: tuple[Tenant, ...], *, is_waiting: bool) -> None:
        if self._running != (tenants, is_waiting):
            self._gpu.run(tenants, mode=self._mode, is_waiting=is_waiting)
            self._running = (tenants, is_waiting)

    def energy_j(self, start_s: float, end_s: float) -> float:
        """Return the energy of the GPU between two moments that have passed, J."""
        first, last = np.interp([start_s, end_s], self._times_s, self._energies_j)
        return float(last - first)

    def readings_w(self, start_s: float, end_s: float) -> list[float]:
        """Return the values of the sensor in a window, W."""
        return [watts for t_s, watts in self._readings if start_s < t_s <= end_s]

    def forget(self, before_s: float) -> None:
        """Forget energy and readings before a time, s."""
        first = max(bisect_right(self._times_s, before_s) - 1, 0)
        del self._times_s[:first], self._energies_j[:first]
        self._readings = [one for one in self._readings if one[0] > before_s]
