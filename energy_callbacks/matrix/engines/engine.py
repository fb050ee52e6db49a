"""The base class of engines, which run the jobs of a matrix."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from energy_callbacks.matrix.attempts import Results
from energy_callbacks.matrix.plan import MatrixJob
from energy_callbacks.matrix.progress import JobProgress


class Engine(ABC):
    """Runs jobs, each as ``energy-callbacks run``, in the order given as far as it can.

    Args:
        options: options of the engine, as its table in the TOML file has them.
        results: results folder; for engines that use several machines, on a shared file system.
    """

    def __init__(self, options: Any, results: Results) -> None:
        self.options = options
        self.results = results

    @abstractmethod
    def preview(self, jobs: Sequence[MatrixJob]) -> str:
        """Describe what ``run`` would do."""

    def queued(self, jobs: Sequence[MatrixJob]) -> list[MatrixJob]:
        """Return the jobs that an earlier call submitted and that have not ended.

        None, if jobs do not outlive the call of ``run``.
        """
        del jobs
        return []

    @abstractmethod
    def run(self, jobs: Sequence[MatrixJob], progress: JobProgress) -> int | None:
        """Run jobs, or submit them. A job that fails does not stop the others.

        Returns:
            The signal that ended it early; ``None`` if no signal did.
        """
