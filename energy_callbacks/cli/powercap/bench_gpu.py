"""The GPU of ``bench``: a simulated one, or a real one on which tenants are served."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from energy_callbacks.cli.powercap import open_bench
from energy_callbacks.inference.profile import images
from energy_callbacks.inference.profile.gpu_settings import GpuSettings
from energy_callbacks.powercap.actuators.protocol import Actuator
from energy_callbacks.powercap.settings import GPU_KNOBS, Knob, KnobRange

if TYPE_CHECKING:
    from energy_callbacks.inference.bench.devices import Device
    from energy_callbacks.inference.bench.tasks import Task

SIMULATED: Final = "sim"


class Gpu(Protocol):
    """What ``--gpu`` names.

    Attributes:
        label: its name in the results folder.
        time: the kind of time that runs take, for messages.
        changes: the settings that may be changed, for messages.
    """

    label: str
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


class Real:
    """A GPU of this machine.

    Args:
        arguments: options of the command; without ``--yes``, no setting is changed.

    Raises:
        ValueError: if there is no such GPU.
        SourceUnavailable: if there is no driver.
        ActuatorError: if settings may be changed, but cannot.
    """

    time = "of measurement, and more for profiles and loading"

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._gpu = open_bench.device(arguments.gpu)
        if arguments.gpu == "auto" and self._gpu.uuid is None:
            raise ValueError(
                "there is no GPU that CUDA may use; use --gpu sim for the simulated GPU of each "
                "task, or --gpu sim:NAME for one"
            )
        self.label = self._gpu.name
        self._data = _folders(arguments.data)
        self._actuator = self._chosen(arguments)
        self._ranges = self._known_ranges()
        through = "" if self._actuator is None else f" through {self._actuator.name}"
        names = ", ".join(knob.replace("_", " ") for knob in self._ranges)
        self.changes = (
            f"controllers may change {names}{through}; the values found are restored"
            if names
            else "controllers change shares, batches and pauses only; --yes allows clocks and limit"
        )

    def device_of(self, task: "Task") -> "Device":
        """See ``Gpu``."""
        from energy_callbacks.inference.bench.real_device import RealDevice

        return RealDevice(
            self._gpu, task.gpu, data=self._data, settings=self._settings, ranges=self._ranges
        )

    def suitable(self, tasks: "Sequence[Task]") -> "tuple[Task, ...]":
        """See ``Gpu``."""
        from energy_callbacks.inference.bench.real_device import is_named

        names = [name for name in {one.gpu for one in tasks} if is_named(self._gpu.name, name)]
        return for_gpu(tasks, names, self._gpu.name)

    def _chosen(self, arguments: argparse.Namespace) -> Actuator | None:
        if not arguments.yes or self._gpu.uuid is None:
            return None
        return open_bench.actuator(self._gpu.uuid, ["limit"])

    def _known_ranges(self) -> dict[Knob, KnobRange]:
        actuator, uuid = self._actuator, self._gpu.uuid
        if actuator is None or uuid is None:
            return {}
        return open_bench.ranges(actuator, uuid, GPU_KNOBS)

    def _settings(self) -> GpuSettings | None:
        if self._actuator is None or self._gpu.uuid is None:
            return None
        return GpuSettings(self._actuator, self._gpu.uuid, allow_changes=True)


def _folders(given: Sequence[str]) -> dict[str, Path | None]:
    """Return the folder of each set of data.

    Raises:
        ValueError: if an entry is not ``NAME=DIR``.
    """
    found: dict[str, Path | None] = {}
    for word in given:
        name, _, folder = word.partition("=")
        if not name or not folder:
            raise ValueError(f"--data must be NAME=DIR or NAME={images.SYNTHETIC}, got {word!r}")
        found[name] = None if folder == images.SYNTHETIC else Path(folder)
    return found


def choose(arguments: argparse.Namespace) -> Gpu:
    """Return what ``--gpu`` names.

    Raises:
        ValueError: if there is no such GPU, or if images are given to a simulated one.
        SourceUnavailable: if a GPU is named and there is no driver.
    """
    if arguments.gpu == SIMULATED or open_bench.is_simulated(arguments):
        if arguments.data:
            raise ValueError(f"{arguments.gpu} reads no images; remove --data")
        return Simulated(arguments.gpu)
    return Real(arguments)
