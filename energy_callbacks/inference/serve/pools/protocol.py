"""What a dispatcher needs: workers that load tenants and run batches, and report both."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from energy_callbacks.inference.records import Status, Tenant


class Ready(NamedTuple):
    """A worker has loaded its tenant.

    Attributes:
        worker: number of the worker.
        note: what the tenant says about how it runs its model.
    """

    worker: int
    note: str = ""


class Done(NamedTuple):
    """A worker has run the oldest of its batches.

    Attributes:
        worker: number of the worker.
        start_s: start of the batch on the clock of the pool, s.
        end_s: its end, s.
    """

    worker: int
    start_s: float
    end_s: float


class Failed(NamedTuple):
    """A worker has ended by a fault; its batches were not run.

    Attributes:
        worker: number of the worker.
        status: what happened: ``oom``, ``timeout`` or ``error``.
        note: text about it.
    """

    worker: int
    status: Status
    note: str


class Ended(NamedTuple):
    """A worker has ended after ``end``, and uses no memory any more.

    Attributes:
        worker: number of the worker.
    """

    worker: int


Event = Ready | Done | Failed | Ended


class Pool(Protocol):
    """Workers, each with a number that the caller chooses.

    ``wake`` may be called from any thread; all other methods are called from one thread.
    """

    def now_s(self) -> float:
        """Return the present time of the clock of all events, s."""
        ...

    def start(self, worker: int, tenant: Tenant) -> None:
        """Start a worker, which loads a tenant; ``Ready`` or ``Failed`` follows."""
        ...

    def load(self, worker: int, tenant: Tenant) -> None:
        """Let a worker load a tenant of the same share after its batches."""
        ...

    def send(self, worker: int, samples: int) -> None:
        """Let a worker run a batch after those that it has; ``Done`` or ``Failed`` follows."""
        ...

    def end(self, worker: int) -> None:
        """End a worker after its batches; ``Ended`` follows.

        Nothing happens if the worker has failed, also if its ``Failed`` was not handled yet.
        """
        ...

    def wait(self, until_s: float) -> Sequence[Event]:
        """Let time pass until something has happened, until a time, or until ``wake``."""
        ...

    def wake(self) -> None:
        """End ``wait``."""
        ...
