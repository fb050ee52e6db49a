"""The base class of engines, which run the jobs of a matrix."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from energy_callbacks.matrix.attempts import Results
from energy_callbacks.matrix.plan import MatrixJob
from energy_callbacks.matrix.progress import JobProgress


class Engine(ABC):
    """Runs jobs, each as ``energy-callbacks run``, in the order given as far as it can.

    Subclasses are data classes; their fields are the keys of the engine's table in the TOML file.
    The results folder of an engine that uses several machines is on a shared file system.
    """

    @abstractmethod
    def preview(self, jobs: Sequence[MatrixJob], results: Results) -> str:
        """Describe what ``run`` would do."""

    def queued(self, jobs: Sequence[MatrixJob], results: Results) -> list[MatrixJob]:
        """Return the jobs that an earlier call submitted and that have not ended.

        None, if jobs do not outlive the call of ``run``.
        """
        del jobs, results
        return []

    @abstractmethod
    def run(self, jobs: Sequence[MatrixJob], results: Results, progress: JobProgress) -> int | None:
        """Run jobs, or submit them. A job that fails does not stop the others.

        Returns:
            The signal that ended it early; ``None`` if no signal did.
        """
