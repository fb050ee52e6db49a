"""A benchmark from its first run to its summary."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from energy_callbacks.inference.bench.benchmark import DeviceOf, Outcome, make
from energy_callbacks.inference.bench.predictors import Predictors
from energy_callbacks.inference.bench.report import collect, pages
from energy_callbacks.inference.bench.report.summary import Summary, summary
from energy_callbacks.inference.bench.results import Results, Settings
from energy_callbacks.inference.bench.runs import Run, runs
from energy_callbacks.inference.bench.tasks import Task

# Windows of a profile. docs/inference.md has the errors of predictors with 10 and 12 windows.
POINTS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkResult:
    """The result of a benchmark.

    Attributes:
        summary: figures of all algorithms on all tasks.
        errors: messages of the runs that failed.
    """

    summary: Summary
    errors: dict[Run, str]


class Benchmark:
    """Compares controllers on tasks.

    Args:
        folder: the results folder.
        device_of: returns the GPU of a task.
        gpu: name of the GPU; results of another one are not mixed.
        window_s: length of a window, s.
        points: number of windows of a profile, without the one in which tenants wait.

    Raises:
        ValueError: if there are too few points for a fit.
    """

    def __init__(
        self,
        folder: Path,
        device_of: DeviceOf,
        *,
        gpu: str,
        window_s: float = 1.0,
        points: int = POINTS,
    ) -> None:
        self._results = Results(folder)
        self._device_of = device_of
        self._settings = Settings(gpu=gpu, window_s=window_s, points=points)
        self._predictors = Predictors(self._results, points)

    def run(
        self,
        tasks: Sequence[Task],
        algorithms: Sequence[str],
        *,
        seeds: int = 1,
        interleave: bool = False,
        resume: bool = False,
        save: bool = False,
        on_outcome: Callable[[Outcome], None] = lambda _: None,
    ) -> BenchmarkResult:
        """Make all runs, and return the figures of all that have finished.

        Args:
            tasks: the tasks, with their numbers of iterations.
            algorithms: names of the controllers.
            seeds: runs of each algorithm on each task.
            interleave: whether algorithms take turns; see ``runs``.
            resume: whether the folder may have results, which are continued.
            save: whether to write the summary and its pages to the folder.
            on_outcome: called after each run.

        Raises:
            FileExistsError: if the folder has results, and ``resume`` is ``False``.
            ValueError: if a task cannot run on its GPU, or if the results in the folder are of
                another benchmark.
            BlockingIOError: if another process writes to the folder.
        """
        for task in tasks:
            self._device_of(task).check(task)
        todo = runs(tasks, algorithms, seeds, interleave=interleave)
        errors: dict[Run, str] = {}
        with self._results.opened(self._settings, tasks, resume=resume):
            for one in self._made(todo):
                if one.error:
                    errors[one.run] = one.error
                on_outcome(one)
            # Tables and colours have the algorithms in the given order.
            found = self._summary(runs(tasks, algorithms, seeds), errors, save=save)
        return BenchmarkResult(summary=found, errors=errors)

    def _made(self, todo: Sequence[Run]) -> Iterator[Outcome]:
        return make(
            todo,
            self._device_of,
            self._results,
            self._predictors,
            window_s=self._settings.window_s,
        )

    def _summary(self, todo: Sequence[Run], errors: dict[Run, str], *, save: bool) -> Summary:
        found = summary(collect.finished(todo, self._device_of, self._results, errors))
        if save:
            curves = collect.curves(todo, self._device_of, self._results)
            pages.save(self._results.folder, found, curves)
        return found
