"""What serves: the processes of a real GPU or CPU, or a simulated GPU in virtual time."""

import threading
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Final, Protocol, Self

from energy_callbacks.core.records import Energy
from energy_callbacks.inference.control.protocols import Abilities, Need
from energy_callbacks.inference.profile import images
from energy_callbacks.inference.profile.gpu_settings import GpuSettings
from energy_callbacks.inference.profile.open_device import LocalDevice, OpenDevice
from energy_callbacks.inference.profile.tenants import LOAD_S
from energy_callbacks.inference.records import Configuration, MeasuredWindow, Mode, needed
from energy_callbacks.inference.serve.dispatcher import Dispatcher
from energy_callbacks.inference.serve.pools import simulated
from energy_callbacks.inference.serve.pools.processes import ProcessPool
from energy_callbacks.inference.serve.pools.protocol import Pool
from energy_callbacks.inference.serve.pools.simulated import SimulatedPool
from energy_callbacks.inference.simulated.gpu import SimulatedGpu
from energy_callbacks.powercap.settings import GPU_KNOBS, Knob, KnobRange, Setting
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.sensing.sources.nvidia.processes import card_processes

_STOP_S: Final = 5.0
# Time for which the energy of a simulated GPU is kept, s.
_KEEP_S: Final = 120.0
WITHOUT_PRIVILEGE: Final[frozenset[Need]] = frozenset({"partition", "batch", "duty", "budget"})
"""What can be changed without privileges, if MPS is available."""


class Sensors(Protocol):
    """Measures windows that have ended."""

    def window(self, start_s: float, end_s: float) -> dict[str, Any]:
        """Return fields of ``MeasuredWindow`` about power, clock and temperature."""
        ...

    def energy(self, start_s: float, end_s: float) -> Energy:
        """Return the energy between two moments."""
        ...

    def ask(self) -> None:
        """Ask for new readings, which come some milliseconds later."""
        ...

    def reach_s(self) -> float:
        """Return the time until which there are readings now, s."""
        ...


class Machine(Protocol):
    """A GPU or CPU with workers and sensors, which is open.

    Attributes:
        pool: the workers.
        sensors: its sensors.
        row: a row of a trace with what does not change.
        abilities: what can be changed.
        not_attributed: why energy cannot be attributed to tenants; empty if it can.
    """

    @property
    def pool(self) -> Pool: ...  # noqa: D102

    @property
    def sensors(self) -> Sensors: ...  # noqa: D102

    @property
    def row(self) -> MeasuredWindow: ...  # noqa: D102

    @property
    def abilities(self) -> Abilities: ...  # noqa: D102

    @property
    def not_attributed(self) -> str: ...  # noqa: D102

    def apply(self, configuration: Configuration) -> None:
        """Set clocks and limit.

        Raises:
            ValueError: if the configuration cannot run on this machine.
            PowerCapError: if a setting cannot be changed.
        """
        ...

    def serve(self, dispatcher: Dispatcher) -> None:
        """Let the dispatcher run from now on, until it is stopped or the machine is closed."""
        ...

    def pass_until(self, t_s: float) -> None:
        """Let time pass until a moment, s."""
        ...


class LocalMachine(AbstractContextManager["LocalMachine"]):
    """Processes on a GPU of this machine, or on its CPU. The dispatcher has a thread of its own.

    Args:
        device: the GPU or CPU.
        data: folder of images; ``None`` for synthetic images.
        settings: changes clocks and limits; ``None`` if they must not be changed.
        ranges: accepted values of the settings that can be changed.
        mode: inference or training.
        load_s: time after which a tenant that does not load is given up, s.
    """

    def __init__(
        self,
        device: LocalDevice,
        *,
        data: Path | None = None,
        settings: GpuSettings | None = None,
        ranges: dict[Knob, KnobRange] | None = None,
        mode: Mode = "infer",
        load_s: float = LOAD_S,
    ) -> None:
        self._clock = SystemClock()
        self._device = OpenDevice(device, settings, self._clock)
        self._ranges = {} if settings is None else dict(ranges or {})
        self._mode: Mode = mode
        self._data, self._load_s = data, load_s
        self._thread: threading.Thread | None = None
        self._dispatcher: Dispatcher | None = None
        self._close = ExitStack()
        self.not_attributed = ""

    def __enter__(self) -> Self:
        """Open the device."""
        with ExitStack() as stack:
            uuid = self._device.device.uuid
            others = () if uuid is None else card_processes(uuid)
            if others:
                pids = ", ".join(str(one.pid) for one in others)
                self.not_attributed = f"other processes use the GPU: {pids}"
            opened = stack.enter_context(self._device)
            self.pool = ProcessPool(opened, data=self._data, mode=self._mode, load_s=self._load_s)
            stack.callback(self.pool.close)
            stack.callback(self._stop)
            self._close = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes, and restore the settings of the GPU."""
        self._close.close()

    def _stop(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.stop()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    @property
    def sensors(self) -> Sensors:
        """See ``Machine``."""
        return self._device.sensors

    @property
    def row(self) -> MeasuredWindow:
        """See ``Machine``."""
        return MeasuredWindow(
            configuration=Configuration(tenants=()),
            source="measured",
            phase="online",
            mode=self._mode,
            gpu_uuid=self._device.device.uuid or "",
            gpu_name=self._device.device.name,
            driver=self._device.driver,
            dataset=images.dataset_name(self._data),
        )

    @property
    def abilities(self) -> Abilities:
        """See ``Machine``."""
        can: set[Need] = {"batch", "duty", "budget", *self._ranges}
        if self._device.no_mps is None:
            can.add("partition")
        return Abilities(can=frozenset(can), ranges=self._ranges)

    def apply(self, configuration: Configuration) -> None:
        """See ``Machine``."""
        self._device.check(configuration)
        self._device.apply(configuration)

    def serve(self, dispatcher: Dispatcher) -> None:
        """See ``Machine``."""
        self._dispatcher = dispatcher
        self._thread = threading.Thread(
            target=dispatcher.run, args=(float("inf"),), name="dispatcher", daemon=True
        )
        self._thread.start()

    def pass_until(self, t_s: float) -> None:
        """See ``Machine``."""
        self._clock.sleep(max(t_s - self._clock.monotonic_s(), 0.0))


class SimulatedMachine:
    """Workers of a simulated GPU, whose time passes in ``pass_until``.

    Args:
        gpu: the GPU.
        can: what may be changed.
        mode: inference or training.
        load_s: time to load a tenant, s.
    """

    def __init__(
        self,
        gpu: SimulatedGpu,
        *,
        can: frozenset[Need] = WITHOUT_PRIVILEGE,
        mode: Mode = "infer",
        load_s: float = simulated.LOAD_S,
    ) -> None:
        self.gpu: Final = gpu
        self.pool: Final = SimulatedPool(gpu, mode, load_s)
        self.sensors: Final = _SimulatedSensors(gpu, self.pool)
        ranges: dict[Knob, KnobRange] = {knob: gpu.range(knob) for knob in GPU_KNOBS if knob in can}
        self.abilities: Final = Abilities(can=can, ranges=ranges)
        self._found: dict[Knob, float | None] = {k: one.present for k, one in ranges.items()}
        self._present = dict(self._found)
        self._dispatcher: Dispatcher | None = None
        self.not_attributed = ""
        self.row: Final = MeasuredWindow(
            configuration=Configuration(tenants=()),
            source="simulated",
            phase="online",
            mode=mode,
            gpu_uuid=gpu.uuid,
            gpu_name=gpu.card.name,
            driver="simulated",
            dataset=images.SYNTHETIC,
        )

    def apply(self, configuration: Configuration) -> None:
        """See ``Machine``."""
        wanted = needed(configuration)
        if lacking := wanted.keys() - self._found.keys():
            raise ValueError(f"{configuration} changes {', '.join(lacking)}, which is not allowed")
        values: dict[Knob, float | None] = {**self._found, **wanted}
        for knob, value in values.items():
            if value != self._present[knob]:
                self.gpu.change(Setting(knob=knob, value=value))
                self._present[knob] = value

    def serve(self, dispatcher: Dispatcher) -> None:
        """See ``Machine``."""
        self._dispatcher = dispatcher

    def pass_until(self, t_s: float) -> None:
        """See ``Machine``."""
        assert self._dispatcher is not None
        self._dispatcher.run(t_s - 1e-6)  # the clock has whole milliseconds, with rounding errors


class _SimulatedSensors:
    def __init__(self, gpu: SimulatedGpu, pool: SimulatedPool) -> None:
        self._gpu, self._pool = gpu, pool

    def window(self, start_s: float, end_s: float) -> dict[str, Any]:
        energy_j = self._pool.energy_j(start_s, end_s)
        power_w = energy_j / (end_s - start_s)
        readings_w = self._pool.readings_w(start_s, end_s)
        self._pool.forget(start_s - _KEEP_S)
        return {
            "energy_j": energy_j,
            "power_mean_w": power_w,
            "power_max_w": max(readings_w, default=power_w),
            "temperature_c": self._gpu.temperature_c,
            "sm_mhz_measured": self._gpu.sm_mhz,
        }

    def energy(self, start_s: float, end_s: float) -> Energy:
        energy_j = self._pool.energy_j(start_s, end_s)
        return Energy(energy_j=energy_j, method="counter", coverage=1.0)

    def ask(self) -> None:
        """See ``Sensors``; the readings of a simulated GPU are never late."""

    def reach_s(self) -> float:
        return self._pool.now_s()
