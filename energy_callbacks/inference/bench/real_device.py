"""A GPU of this machine as the GPU of a benchmark: its tenants are processes in a closed loop."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Final

from energy_callbacks.inference.bench.devices import controlled, spread
from energy_callbacks.inference.bench.runs import Run
from energy_callbacks.inference.bench.tasks import Task
from energy_callbacks.inference.control.protocols import Controller, Window
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.profile import images
from energy_callbacks.inference.profile.gpu_settings import GpuSettings
from energy_callbacks.inference.profile.local_bench import LocalBench
from energy_callbacks.inference.profile.open_device import LocalDevice
from energy_callbacks.inference.profile.steps import check_name
from energy_callbacks.inference.protocols import Bench
from energy_callbacks.inference.records import Source
from energy_callbacks.inference.serve.arrivals import ClosedLoop
from energy_callbacks.inference.serve.machine import LocalMachine
from energy_callbacks.inference.serve.server import Server
from energy_callbacks.inference.serve.session import Replanning
from energy_callbacks.powercap.settings import Knob, KnobRange

Ranges = Mapping[Knob, KnobRange]
# Returns an object that changes settings and restores them; ``None`` if they must not be changed.
SettingsOf = Callable[[], GpuSettings | None]


class RealDevice:
    """A GPU of this machine.

    Args:
        device: the GPU.
        gpu: its name in tasks and file names.
        data: folder of each set of data; ``None`` for synthetic images.
        settings: called for each run.
        ranges: accepted values of the settings that may be changed; empty if none may be changed.
    """

    source: Source = "measured"

    def __init__(
        self,
        device: LocalDevice,
        gpu: str,
        *,
        data: Mapping[str, Path | None],
        settings: SettingsOf,
        ranges: Ranges,
    ) -> None:
        self._device, self._data = device, data
        self._settings, self._ranges = settings, ranges
        self.name: str = device.name
        self.label: str = gpu
        self.clocks_mhz: tuple[float, ...] = ()
        if "clock" in ranges:
            clock = ranges["clock"]
            self.clocks_mhz = spread(clock.steps or (clock.lowest, clock.highest))

    def check(self, task: Task) -> None:
        """See ``Device``."""
        if not is_named(self._device.name, task.gpu):
            raise ValueError(
                f"task {task.number} is for {task.gpu}, and --gpu is {self._device.name}; use "
                f"--gpu sim:{task.gpu} for a simulated GPU, or change gpu in a file of tasks"
            )
        check_name(task.model)
        if task.dataset not in self._data:
            raise ValueError(
                f"task {task.number} needs images of {task.dataset}; add --data "
                f"{task.dataset}=DIR, or --data {task.dataset}={images.SYNTHETIC} for noise"
            )
        images.dataset_name(self._data[task.dataset])  # raises an error if there are no images

    def dataset(self, task: Task) -> str:
        """See ``Device``."""
        is_synthetic = self._data[task.dataset] is None
        return f"{task.dataset} ({images.SYNTHETIC})" if is_synthetic else task.dataset

    def problem(self, task: Task) -> Problem:
        """See ``Device``. The memory that a model needs is not known, and not limited."""
        return Problem(models=(task.model,))

    @contextmanager
    def bench(self, task: Task) -> Iterator[Bench]:
        """See ``Device``."""
        with LocalBench(
            self._device, data=self._data[task.dataset], settings=self._settings()
        ) as opened:
            yield opened

    @contextmanager
    def windows(
        self, run: Run, controller: Controller, window_s: float
    ) -> Iterator[Iterator[tuple[Window, float]]]:
        """See ``Device``. The settings found are restored at the end."""
        task = run.task
        with LocalMachine(
            self._device,
            data=self._data[task.dataset],
            settings=self._settings(),
            ranges=dict(self._ranges),
            mode=task.mode,
        ) as machine:
            server = Server(machine, {task.model: ClosedLoop()})
            # The server needs the cap, below which it keeps the power while tenants load.
            with_cap = Replanning(server, lambda _: controller)
            yield controlled(task, with_cap, server, window_s)

    def best_per_s(self, task: Task, cap_w: float) -> None:
        """See ``Device``. It is not known."""

    def timestamp(self, t_s: float) -> str:  # noqa: ARG002
        """See ``Device``. It is the present time."""
        return datetime.now(UTC).isoformat(timespec="milliseconds")


_WORD: Final = re.compile(r"[a-z0-9]+")
# Words after the name of a GPU that make it the name of another GPU.
_VARIANTS: Final = frozenset({"ti", "super", "laptop", "max", "with", "ada", "d"})


def is_named(name: str, gpu: str) -> bool:
    """Return whether a GPU with a driver's name is the one that tasks call ``gpu``.

    >>> name = "NVIDIA GeForce RTX 3080 Ti"
    >>> is_named(name, "rtx3080ti"), is_named(name, "rtx3080")
    (True, False)
    """
    words, wanted = _WORD.findall(name.lower()), "".join(_WORD.findall(gpu.lower()))
    return any(
        "".join(words[first:end]) == wanted and not _VARIANTS.intersection(words[end : end + 1])
        for first, end in combinations(range(len(words) + 1), 2)
    )
