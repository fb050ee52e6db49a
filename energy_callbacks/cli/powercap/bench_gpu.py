"""The GPU of ``bench``: a simulated one, or a real one on which tenants are served."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from energy_callbacks.inference.bench.devices import Device
    from energy_callbacks.inference.bench.tasks import Task

SIMULATED = "sim"


class Gpu(Protocol):
    """What ``--gpu`` names.

    Attributes:
        label: its name in the results folder.
        is_simulated: whether it is simulated.
        time: which time a run takes, for messages.
        changes: which of its settings may be changed, for messages.
    """

    label: str
    is_simulated: bool
    time: str
    changes: str

    def device_of(self, task: "Task") -> "Device":
        """Return the GPU on which a task runs.

        Raises:
            ValueError: if it cannot run there.
        """
        ...

    def suitable(self, tasks: "Sequence[Task]") -> "tuple[Task, ...]":
        """Return the tasks that are for this GPU.

        Raises:
            ValueError: if there are none.
        """
        ...


class Simulated:
    """One simulated GPU, or that of each task.

    Args:
        name: name of a preset, such as ``sim:a100``, or ``sim``.

    Raises:
        ValueError: if there is no such preset.
    """

    is_simulated = True
    time = "of virtual time"
    changes = "no setting of a real GPU is changed"

    def __init__(self, name: str) -> None:
        from energy_callbacks.inference.bench.devices import SimulatedDevice

        self._name = name
        self._device = None if name == SIMULATED else SimulatedDevice(name)
        self._devices: dict[str, Device] = {}
        self.label = name.replace(":", "-")

    def device_of(self, task: "Task") -> "Device":
        """See ``Gpu``."""
        from energy_callbacks.inference.bench import devices

        if self._device is not None:
            return self._device
        if task.gpu not in self._devices:
            self._devices[task.gpu] = devices.simulated(task)
        return self._devices[task.gpu]

    def suitable(self, tasks: "Sequence[Task]") -> "tuple[Task, ...]":
        """See ``Gpu``."""
        if self._device is None:
            return tuple(tasks)
        return for_gpu(tasks, [self._name.partition(":")[2]], self._name)


def for_gpu(tasks: "Sequence[Task]", names: Sequence[str], gpu: str) -> "tuple[Task, ...]":
    """Return the tasks for one of some names of a GPU.

    Raises:
        ValueError: if there are none.
    """
    found = tuple(one for one in tasks if one.gpu in names)
    if not found:
        known = ", ".join(sorted({one.gpu for one in tasks}))
        raise ValueError(
            f"no task is for {gpu}; the tasks are for {known}; use --gpu sim to run each on the "
            "simulated GPU of its card, or write tasks for this GPU and give them with --tasks"
        )
    return found


def choose(arguments: argparse.Namespace) -> Gpu:
    """Return what ``--gpu`` names.

    Raises:
        ValueError: if there is no such GPU.
    """
    return Simulated(arguments.gpu)
