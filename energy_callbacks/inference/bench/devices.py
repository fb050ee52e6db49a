"""What the tasks of a benchmark run on: the protocol, and the simulated GPU."""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from energy_callbacks.inference.bench.optimum import optimum, task_problem
from energy_callbacks.inference.bench.runs import Run
from energy_callbacks.inference.bench.tasks import Task
from energy_callbacks.inference.control import loop
from energy_callbacks.inference.control.loop import CapSchedule
from energy_callbacks.inference.control.protocols import Controller, Plant, Window
from energy_callbacks.inference.control.simulated_plant import SimulatedPlant
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.protocols import Bench
from energy_callbacks.inference.records import Source
from energy_callbacks.inference.simulated import presets

# Clocks of a profile, as positions in the list of all clocks: 0 is the lowest, 1 the highest.
_CLOCKS: Final = (0.25, 0.5, 1.0)
# Virtual time begins here, so that it cannot be confused with the time of a measurement.
_START: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Device(Protocol):
    """A GPU on which tasks run.

    Attributes:
        name: its name in rows.
        label: its name in file names.
        source: ``"measured"``, or ``"simulated"``.
        clocks_mhz: clocks of a profile, MHz; empty if the clock cannot be changed.
    """

    name: str
    label: str
    source: Source
    clocks_mhz: tuple[float, ...]

    def check(self, task: Task) -> None:
        """Check that a task can run.

        Raises:
            ValueError: if the task is for another GPU, or if the model is unknown, or if the folder
                of the data is not given.
            FileNotFoundError: if that folder has no images.
        """

    def dataset(self, task: Task) -> str:
        """Return the name of the data in rows: that of the task, or a substitute."""
        ...

    def problem(self, task: Task) -> Problem:
        """Return what controllers may choose for a task."""
        ...

    def bench(self, task: Task) -> AbstractContextManager[Bench]:
        """Provide what measures a profile for a task."""
        ...

    def windows(
        self, run: Run, controller: Controller, window_s: float
    ) -> AbstractContextManager[Iterator[tuple[Window, float]]]:
        """Provide the windows of a run with their caps in W, while the controller works.

        Args:
            run: the run; the number of iterations of its task is set.
            controller: the controller.
            window_s: length of a window, s.
        """
        ...

    def best_per_s(self, task: Task, cap_w: float) -> float | None:
        """Return the samples per second of the best operating point; ``None`` if not known."""
        ...

    def timestamp(self, t_s: float) -> str:
        """Return the time in ISO 8601, ``t_s`` seconds after the start of a run."""
        ...


class SimulatedDevice:
    """A simulated GPU. Results depend on the arguments of a benchmark only, and can be repeated.

    Args:
        name: name of a preset, such as ``sim:a100``.

    Raises:
        ValueError: if there is no such preset.
    """

    source: Source = "simulated"

    def __init__(self, name: str) -> None:
        if name not in presets.names():
            raise ValueError(f"no simulated GPU {name!r}; choose from {', '.join(presets.names())}")
        self._preset = name
        self._key = name.removeprefix(presets.PREFIX)
        card = presets.card(self._key)
        self.name = card.name
        self.label = name.replace(":", "-")
        self.clocks_mhz = spread(card.ladder_mhz.tolist())

    def check(self, task: Task) -> None:
        """See ``Device``."""
        if task.gpu != self._key:
            raise ValueError(
                f"task {task.number} is for {task.gpu}, and --gpu is {self._preset}; use --gpu "
                f"{presets.PREFIX}{task.gpu}, or --gpu sim for the simulated GPU of each task"
            )
        known = presets.workloads(self._key)
        if task.model not in known:
            raise ValueError(
                f"task {task.number}: {self._preset} has no model {task.model!r}; it has "
                f"{', '.join(sorted(known))}"
            )

    def dataset(self, task: Task) -> str:
        """See ``Device``. A simulated GPU has no data; those of tasks differ in their noise."""
        return task.dataset

    def problem(self, task: Task) -> Problem:
        """See ``Device``."""
        return task_problem(self._preset, task.model, task.mode)

    @contextmanager
    def bench(self, task: Task) -> Iterator[Bench]:
        """See ``Device``. Every set of data has separate noise, as a separate measurement has."""
        noise = zlib.crc32(f"{task.model} {task.dataset} {task.mode}".encode())
        yield presets.simulated_gpu(self._preset, seed=noise, mode=task.mode)

    @contextmanager
    def windows(
        self, run: Run, controller: Controller, window_s: float
    ) -> Iterator[Iterator[tuple[Window, float]]]:
        """See ``Device``."""
        gpu = presets.simulated_gpu(self._preset, seed=run.seed, mode=run.task.mode)
        yield controlled(run.task, controller, SimulatedPlant(gpu), window_s)

    def best_per_s(self, task: Task, cap_w: float) -> float | None:
        """See ``Device``."""
        best = optimum(self._preset, task.model, task.mode, cap_w)
        return None if best is None else best.throughput_per_s

    def timestamp(self, t_s: float) -> str:
        """See ``Device``. It is virtual time from 1970 on, the same in every repeat."""
        return (_START + timedelta(seconds=round(t_s, 3))).isoformat(timespec="milliseconds")


def controlled(
    task: Task, controller: Controller, plant: Plant, window_s: float
) -> Iterator[tuple[Window, float]]:
    """Yield each window of a task with its cap in W; an iteration is a window.

    Raises:
        ValueError: if the number of iterations is not set, or if the controller cannot work.
    """
    if task.iterations is None:
        raise ValueError(
            f"task {task.number} has no number of iterations; set it with task.lasting(iterations)"
        )
    steps = tuple((start * window_s, cap_w) for start, cap_w in task.schedule)
    caps = CapSchedule(steps)
    return loop.run(controller, plant, caps, windows=task.iterations, window_s=window_s)


def spread(clocks_mhz: Sequence[float]) -> tuple[float, ...]:
    """Return the clocks of a profile, from all clocks of a GPU in MHz.

    >>> spread([200.0, 400.0, 600.0, 800.0, 1000.0])
    (400.0, 600.0, 1000.0)
    >>> spread([200.0, 1000.0])
    (200.0, 1000.0)
    """
    ordered = sorted(clocks_mhz)
    chosen = (ordered[round(part * (len(ordered) - 1))] for part in _CLOCKS)
    return tuple(dict.fromkeys(chosen))


def simulated(task: Task) -> SimulatedDevice:
    """Return the simulated GPU of the card that a task is for.

    Raises:
        ValueError: if the card has no preset.
    """
    name = f"{presets.PREFIX}{task.gpu}"
    if name not in presets.names():
        raise ValueError(
            f"task {task.number} is for {task.gpu}, which cannot be simulated; the simulated GPUs "
            f"are {', '.join(presets.names())}"
        )
    return SimulatedDevice(name)
