"""Machines with sensors of each vendor, in virtual time; GPU and CPU have known powers."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from energy_callbacks.core.records import Scope
from energy_callbacks.core.settings.checks import Devices
from energy_callbacks.sensing import discovery
from energy_callbacks.sensing.discovery import POWERCAP_VARIABLE
from energy_callbacks.sensing.sources.commands import powermetrics
from energy_callbacks.sensing.sources.sysfs.family import SYSFS_VARIABLE
from energy_callbacks.testing import FakeClock
from tests.fake_nvml import Constant, FakeNvml, Scenario, Square, h200
from tests.fake_nvml.test_fake_card import CardClock
from tests.sensing.gpus.machines import nvidia
from tests.sensing.sources.commands.fake_powermetrics import FakePowermetrics
from tests.sensing.sources.trees import (
    LiveDevice,
    RunningTree,
    Tree,
    amd_gpu,
    ina3221,
    intel_gpu,
    rapl_package,
    xe_gpu,
)
from tests.sensing.sources.trees.amd_gpus import mi300x

LOAD: Final = Square(low_w=100.0, high_w=400.0, period_s=7.0)
"""Power of the GPU; of the whole board on a Jetson."""
CPU: Final = Constant(80.0)
# What the rails of the GPU and of the other parts of the chip have of the power of a Jetson.
GPU_RAIL, CHIP_RAIL = 0.4, 0.2
# Time between two changes of the files, s. Sensors are read at multiples of it.
_STEP_S: Final = 0.01
TruthJ = Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine.

    Attributes:
        clock: its clock.
        truths_j: for each scope that sensors measure, the energy between two times of the clock.
        devices: setting that measures its GPU, though no process uses it.
    """

    clock: FakeClock
    truths_j: Mapping[Scope, TruthJ]
    devices: Devices = "all"


MakeMachine = Callable[[Path, pytest.MonkeyPatch, ExitStack], Machine]


class _Files:
    """A tree with devices whose files follow their power from now on."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        self.running = RunningTree(Tree(folder / "sys"), clock)
        self._clock = clock
        self._start_s = clock.monotonic_s()

    def truth_of(self, device: LiveDevice, share: float = 1.0) -> TruthJ:
        """Return the function of the energy of a device, given the share that is measured."""

        def truth_j(start_s: float, end_s: float) -> float:
            zero_s = self._start_s
            return share * self.running.truth_j(device, start_s - zero_s, end_s - zero_s)

        return truth_j

    def with_cpu(self) -> TruthJ:
        """Add a CPU with RAPL."""
        cpu = rapl_package(self.running.tree, start_j=1000.0)
        self.running.add(cpu, CPU)
        return self.truth_of(cpu)


def _card(make: Callable[..., LiveDevice], folder: Path, *_: object) -> Machine:
    """A CPU with RAPL and a graphics card."""
    clock = FakeClock()
    files = _Files(folder, clock)
    gpu = make(files.running.tree, start_j=50_000.0)
    files.running.add(gpu, LOAD)
    cpu_j = files.with_cpu()
    files.running.start(_STEP_S)
    return Machine(clock, {"gpu": files.truth_of(gpu), "host": cpu_j})


def _rapl(folder: Path, *_: object) -> Machine:
    """A CPU with RAPL, without a GPU."""
    clock = FakeClock()
    files = _Files(folder, clock)
    cpu_j = files.with_cpu()
    files.running.start(_STEP_S)
    return Machine(clock, {"host": cpu_j}, "auto")


def _jetson(folder: Path, *_: object) -> Machine:
    """A Jetson board with its rails."""
    clock = FakeClock()
    files = _Files(folder, clock)
    board = ina3221(files.running.tree)
    files.running.add(board, LOAD)
    files.running.start(_STEP_S)
    shares: dict[Scope, float] = {"machine": 1.0, "gpu": GPU_RAIL, "host": CHIP_RAIL}
    truths_j = {scope: files.truth_of(board, share) for scope, share in shares.items()}
    return Machine(clock, truths_j, "auto")


def _nvidia(folder: Path, patch: pytest.MonkeyPatch, stack: ExitStack) -> Machine:
    """An H200, and a CPU with RAPL."""
    nvml = FakeNvml(Scenario(cards=(h200(LOAD),)), folder)
    stack.callback(nvml.close)
    patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    clock = CardClock(nvml.time)
    files = _Files(folder, clock)
    nvidia(files.running.tree, "0000:17:00.0")
    cpu_j = files.with_cpu()
    files.running.start(_STEP_S)
    unix_s = clock.unix_s() - clock.monotonic_s()

    def gpu_j(start_s: float, end_s: float) -> float:
        return nvml.energy_j(0, start_s + unix_s, end_s + unix_s)

    return Machine(clock, {"gpu": gpu_j, "host": cpu_j})


def _apple(folder: Path, patch: pytest.MonkeyPatch, _: object) -> Machine:
    """A Mac with Apple silicon."""
    clock = FakeClock()
    powers = {"gpu_energy": LOAD, "cpu_energy": CPU}
    patch.setattr(discovery, "sys", SimpleNamespace(platform="darwin"))
    patch.setattr(powermetrics, "Command", partial(FakePowermetrics, clock, powers))
    start_s = clock.monotonic_s()
    gpu_j, cpu_j = (
        lambda begin_s, end_s, power=power: power.energy_j(begin_s - start_s, end_s - start_s)
        for power in (LOAD, CPU)
    )
    return Machine(clock, {"gpu": gpu_j, "host": cpu_j}, "auto")


MACHINES: Final[Mapping[str, MakeMachine]] = {
    "NVIDIA": _nvidia,
    "AMD card": partial(_card, amd_gpu),
    "AMD accelerator": partial(_card, mi300x),
    "Intel i915": partial(_card, intel_gpu),
    "Intel xe": partial(_card, xe_gpu),
    "Jetson": _jetson,
    "Apple": _apple,
    "RAPL": _rapl,
}


@contextmanager
def machine(name: str, folder: Path) -> Iterator[Machine]:
    """This process runs on a machine.

    Args:
        name: name in ``MACHINES``.
        folder: folder for its files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.delenv(POWERCAP_VARIABLE, raising=False)
        patch.setenv(SYSFS_VARIABLE, str(folder / "sys"))
        yield MACHINES[name](folder, patch, stack)
