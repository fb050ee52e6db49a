"""Makes the runs of a benchmark, and writes every row to the disk before the next window."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from energy_callbacks.core.errors import EnergyCallbacksError
from energy_callbacks.inference.bench import rows
from energy_callbacks.inference.bench.devices import Device
from energy_callbacks.inference.bench.predictors import Predictors
from energy_callbacks.inference.bench.results import Results
from energy_callbacks.inference.bench.runs import Run
from energy_callbacks.inference.bench.tasks import Task
from energy_callbacks.inference.control import controllers
from energy_callbacks.inference.control.protocols import Controller
from energy_callbacks.inference.profile.tenant_process import TenantFailed

DeviceOf = Callable[[Task], Device]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a run.

    Attributes:
        run: the run.
        error: why it failed; empty if it finished.
        was_finished: whether an earlier process has finished it.
    """

    run: Run
    error: str = ""
    was_finished: bool = False


def make(
    todo: Sequence[Run],
    device_of: DeviceOf,
    results: Results,
    predictors: Predictors,
    *,
    window_s: float,
) -> Iterator[Outcome]:
    """Make runs one after the other, and yield the outcome of each.

    Runs that are finished in the results folder are not made again. If a run fails, for example
    because its controller cannot work under the cap, its outcome has the error, and the next run
    follows.

    Args:
        todo: the runs; the number of iterations of their tasks is set.
        device_of: returns the GPU of a task.
        results: the results folder, opened by the caller.
        predictors: the predictors of the controllers.
        window_s: length of a window, s.
    """
    for run in todo:
        device = device_of(run.task)
        if results.is_finished(run.file(device.label)):
            yield Outcome(run=run, was_finished=True)
            continue
        try:
            _make(run, device, results, predictors, window_s)
            yield Outcome(run=run)
        except (EnergyCallbacksError, TenantFailed, ValueError) as error:
            yield Outcome(run=run, error=str(error) or type(error).__name__)


def _make(
    run: Run, device: Device, results: Results, predictors: Predictors, window_s: float
) -> None:
    task = run.task
    model = predictors.of(task, device)
    controller = controllers.create(run.algorithm, device.problem(task), model)
    with (
        results.part_of(run.file(device.label)) as path,
        rows.RowFile(path) as file,
        device.windows(run, controller, window_s) as windows,
    ):
        start_s = None
        for iteration, (window, cap_w) in enumerate(windows):
            start_s = window.start_s if start_s is None else start_s
            cells = rows.cells(
                iteration,
                window,
                cap_w,
                labels(run, device, controller),
                start_s=start_s,
                timestamp=device.timestamp(window.end_s - start_s),
            )
            file.append(cells)


def labels(run: Run, device: Device, controller: Controller) -> rows.Labels:
    """Return what is the same in all rows of a run."""
    return rows.Labels(
        source=device.source,
        gpu=device.name,
        dataset=device.dataset(run.task),
        algorithm=run.algorithm,
        seed=run.seed,
        degraded=controller.degraded,
    )
