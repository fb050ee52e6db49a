"""The predictor of each model and set of data, fitted to a profile that the benchmark measures.

Controllers that plan need a predictor. A predictor is never used for other data,
because images of another size or with another decoder have another speed.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from energy_callbacks.inference.bench.devices import Device
from energy_callbacks.inference.bench.results import Results
from energy_callbacks.inference.bench.tasks import Task
from energy_callbacks.inference.predictor import Predictor
from energy_callbacks.inference.profile import run as profile
from energy_callbacks.inference.profile.sweeps import Job, anchor, designed, with_settings
from energy_callbacks.inference.records import Configuration, MeasuredWindow
from energy_callbacks.inference.traces import append, read

# Shares of a profile in percent: the smallest one, and the step between two.
_SHARE_STEP: Final = 10.0
# Its batches, for every share. The batches of sweeps suit the share, but plans choose batches at
# the edge of their range. With these batches and three clocks, predictors of simulated GPUs err by
# 8 to 12 % in throughput; with those of sweeps and five clocks, by 13 to 26 % (16 points, four
# models on four cards).
_BATCHES: Final = (4, 16, 64, 256)
# Length of a window of a profile and the time before it, as in ``powercap profile``, s.
_WINDOW_S, _WARMUP_S = 5.0, 3.0
_LEAST: Final = 4  # smallest number of windows; a fit needs three


class Predictors:
    """Fits predictors, and keeps their profiles in the results folder.

    Args:
        results: the results folder.
        points: number of windows of a profile, without the one in which tenants wait.

    Raises:
        ValueError: if there are too few points for a fit.
    """

    def __init__(self, results: Results, points: int) -> None:
        if points < _LEAST:
            raise ValueError(f"a profile needs at least {_LEAST} points, got {points}")
        self._results = results
        self._points = points
        self._fitted: dict[Path, Predictor] = {}

    def of(self, task: Task, device: Device) -> Predictor:
        """Return the predictor for a task; its profile is measured if it does not exist.

        Raises:
            ValueError: if the profile is of another GPU, model, mode or of other data, or if too
                many of its windows failed.
        """
        file = profile_file(task, device)
        if file not in self._fitted:
            if not self._results.is_finished(file):
                self._measure(file, task, device)
            path = self._results.folder / file
            rows = read(path)
            check(path, rows, task, device)
            self._fitted[file] = _fitted(path, rows)
        return self._fitted[file]

    def _measure(self, file: Path, task: Task, device: Device) -> None:
        every = configurations(task.model, device.clocks_mhz, self._points)
        jobs = [Job(configuration=one, phase="anchor", mode=task.mode) for one in every]
        # Power of tenants that wait, which controllers with duty cycling need.
        waiting = Configuration(tenants=every[0].tenants)
        jobs.append(Job(configuration=waiting, phase="static", mode=task.mode))
        with self._results.part_of(file) as path, device.bench(task) as bench:
            for _ in profile.measured(
                bench,
                jobs,
                lambda row: append(path, replace(row, dataset=device.dataset(task))),
                window_s=_WINDOW_S,
                warmup_s=_WARMUP_S,
                run_id=file.stem,
            ):
                pass


def profile_file(task: Task, device: Device) -> Path:
    """Return the path of the profile for a task, relative to the results folder."""
    return Path("profiles", f"{device.label}_{task.model}_{task.dataset}_{task.mode}.csv")


def configurations(model: str, clocks_mhz: Sequence[float], points: int) -> list[Configuration]:
    """Return the configurations of a profile: equal tenants that are far from each other."""
    tenants = anchor([model], share_step=_SHARE_STEP, batches=_BATCHES)
    every = with_settings(tenants, sm_mhz=clocks_mhz)
    return designed(every, points)


def _fitted(path: Path, rows: Sequence[MeasuredWindow]) -> Predictor:
    try:
        return Predictor.fit_only(rows)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; remove the file, and it is measured again") from error


def check(path: Path, rows: Sequence[MeasuredWindow], task: Task, device: Device) -> None:
    """Check that a profile is one for a task.

    Raises:
        ValueError: if it is of another GPU, model, mode or of other data.
    """
    for row in rows:
        models = {one.model for one in row.configuration.tenants}
        for name, found, needed in (
            ("GPU", row.gpu_name, device.name),
            ("data set", row.dataset, device.dataset(task)),
            ("mode", row.mode, task.mode),
            ("model", ", ".join(sorted(models)), task.model),
        ):
            if found != needed:
                raise ValueError(
                    f"{path} is a profile with the {name} {found!r}, and task {task.number} needs "
                    f"{needed!r}; remove the file, and it is measured again"
                )
