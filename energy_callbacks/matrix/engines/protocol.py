"""The protocol of engines, which run jobs."""

from collections.abc import Sequence
from typing import Protocol

from energy_callbacks.matrix.attempts import Outcome
from energy_callbacks.matrix.plan import MatrixJob


class JobListener(Protocol):
    """Callbacks for the progress of jobs; called on the thread that called ``Engine.run``."""

    def started(self, job: MatrixJob, place: str) -> None:
        """A job has begun, on a device or machine."""
        ...

    def ended(self, job: MatrixJob, outcome: Outcome) -> None:
        """A job has ended, well or not."""
        ...

    def waiting(self) -> None:
        """Nothing happened for a moment."""
        ...

    def said(self, line: str) -> None:
        """Something else that the user wants to know."""
        ...


class Engine(Protocol):
    """Runs jobs, each as ``energy-callbacks run``, in the order given as far as it can."""

    def preview(self, jobs: Sequence[MatrixJob]) -> str:
        """Describe what ``run`` would do."""
        ...

    def queued(self, jobs: Sequence[MatrixJob]) -> list[MatrixJob]:
        """Jobs that an earlier call has handed on and that are still to come."""
        ...

    def run(self, jobs: Sequence[MatrixJob], told: JobListener) -> int | None:
        """Run them, or hand them on to what will.

        A job that fails does not stop the others.

        Returns:
            The signal that ended it early; ``None`` if all has been done.
        """
        ...
