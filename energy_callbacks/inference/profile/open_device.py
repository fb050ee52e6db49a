"""Opens a GPU or the CPU of this machine for tenants: folder, MPS, sensors and settings."""

from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Final, Self

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.inference.profile.device_sensors import DeviceSensors
from energy_callbacks.inference.profile.gpu_settings import GpuSettings
from energy_callbacks.inference.profile.run_folder import RunFolder
from energy_callbacks.inference.records import Configuration, needed
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.sources.nvidia.source import session

CPU: Final = "CPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDevice:
    """A GPU of this machine, or its CPU.

    Attributes:
        uuid: UUID of the GPU; ``None`` for the CPU.
        name: name of the GPU.
    """

    uuid: str | None
    name: str


class OpenDevice(AbstractContextManager["OpenDevice"]):
    """A device with a folder for tenants, a private MPS daemon, and sensors that are read.

    At the end of the context, all processes end, and the settings found are restored.

    Args:
        device: the GPU or the CPU.
        settings: changes clocks and power limits; ``None`` if they must not be changed.
        clock: tells the time.

    Attributes:
        device: the GPU or the CPU.
        folder: folder of the tenants.
        sensors: its sensors.
        driver: version of the driver; empty for the CPU.
        no_mps: why there is no MPS on the GPU; ``None`` if there is, and for the CPU.
    """

    folder: RunFolder
    sensors: DeviceSensors

    def __init__(self, device: LocalDevice, settings: GpuSettings | None, clock: Clock) -> None:
        self.device: Final = device
        self.driver = ""
        self.no_mps: ActuatorError | None = None
        self._settings, self._clock = settings, clock
        self._close = ExitStack()

    def __enter__(self) -> Self:
        """Open the sensors, and start MPS if the device is a GPU."""
        uuid = self.device.uuid
        with ExitStack() as stack:
            if self._settings is not None:
                stack.enter_context(self._settings)
            self.folder = stack.enter_context(RunFolder())
            if uuid is not None:
                try:
                    self.folder.start_mps(self.variables)
                except ActuatorError as error:
                    self.no_mps = error
            self.sensors = stack.enter_context(DeviceSensors(uuid, self._clock))
            self.driver = _driver(uuid)
            self._close = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes, and restore the settings of the GPU."""
        self._close.close()

    @property
    def torch_device(self) -> str:
        """PyTorch's name of the device, in the processes of tenants."""
        return "cpu" if self.device.uuid is None else "cuda"

    @property
    def variables(self) -> dict[str, str]:
        """More environment variables of the processes of tenants."""
        return {} if self.device.uuid is None else {"CUDA_VISIBLE_DEVICES": self.device.uuid}

    def check(self, configuration: Configuration) -> None:
        """Raise an error if the configuration cannot run on this device.

        Raises:
            ActuatorError: if it needs MPS, which cannot be started.
            ValueError: if it needs settings that must not be changed.
        """
        if self.no_mps is not None and any(t.share_pct < 100.0 for t in configuration.tenants):
            raise self.no_mps
        if self._settings is None and needed(configuration):
            raise ValueError(
                f"{configuration} needs clocks or limits, which must not be changed without consent"
            )

    def apply(self, configuration: Configuration) -> None:
        """Set the clocks and the limit of a configuration.

        Raises:
            ValueError: if the GPU does not accept a value.
            PowerCapError: if a setting cannot be changed.
        """
        if self._settings is not None:
            self._settings.apply(configuration)


def _driver(uuid: str | None) -> str:
    if uuid is None:
        return ""
    with session(uuid) as nvml:
        version = nvml.nvmlSystemGetDriverVersion()
    return version.decode() if isinstance(version, bytes) else str(version)
