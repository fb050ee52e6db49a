"""Defines ``Engine``, the base class of engines, which run the jobs of a matrix."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from energy_callbacks.matrix.attempts import Results
from energy_callbacks.matrix.plan import MatrixJob
from energy_callbacks.matrix.progress import JobProgress


class Engine(ABC):
    """Runs each job with ``energy-callbacks run``, in the given order as far as possible.

    Subclasses are data classes; their fields are the keys of the engine's table in the TOML file,
    except for the options of ``sbatch`` (see ``SlurmEngine``). If an engine uses several machines,
    the results folder must be on a file system that all of them share.
    """

    @abstractmethod
    def preview(self, jobs: Sequence[MatrixJob], results: Results) -> str:
        """Return a text that describes what ``run`` would do with ``jobs``."""

    def queued(self, jobs: Sequence[MatrixJob], results: Results) -> list[MatrixJob]:
        """Return those of ``jobs`` that an earlier ``run`` submitted and that have not ended.

        The list is empty for engines whose jobs all end before ``run`` returns.
        """
        del jobs, results
        return []

    @abstractmethod
    def run(self, jobs: Sequence[MatrixJob], results: Results, progress: JobProgress) -> int | None:
        """Run jobs, or submit them. A job that fails does not stop the others.

        Returns:
            The number of the signal that ended ``run`` early; ``None`` if there was none.
        """
