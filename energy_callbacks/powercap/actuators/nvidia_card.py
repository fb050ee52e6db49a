"""Reads settings of NVIDIA cards through NVML, which needs no permission.

All actuators of NVIDIA cards read in this way; they differ in how they write.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypeVar

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.core.units import watts_from_milliwatts
from energy_callbacks.powercap.actuators.protocol import Actuator, Probe, check_limit
from energy_callbacks.powercap.settings import GPU_KNOBS, Knob, KnobRange, Setting
from energy_callbacks.sensing import time_limit

Answer = TypeVar("Answer")

# A locked clock is contradicted by a clock that is higher by more than this, MHz. Clocks of NVIDIA
# cards are multiples of 7.5 or 15 MHz, and readings are whole numbers.
_SAME_CLOCK_MHZ: Final = 15.0
# The clock follows a new setting after some milliseconds. A clock that is too high is therefore
# read again, this many times, at this interval in s.
_LOOKS: Final = 4
_LOOK_INTERVAL_S: Final = 0.02


class NvidiaActuator(Actuator, ABC):
    """Reads settings through NVML, checks values, and reads limits back after writing them.

    Attributes:
        needs: what the actuator needs to write, as text for the user.
    """

    needs: str

    def __init__(self) -> None:
        # Imported here because background threads call the methods, and must not import modules.
        import pynvml

        self._nvml: Any = pynvml

    @abstractmethod
    def _permission(self, uuid: str) -> tuple[bool | None, str]:
        """Return whether the actuator may write (``None``: perhaps), and what was found."""

    @abstractmethod
    def _write(self, uuid: str, setting: Setting, within: KnobRange) -> None:
        """Write a setting whose value is accepted by the card, which accepts the range ``within``.

        Raises:
            ActuatorError: if the setting is refused.
        """

    def probe(self, uuid: str) -> Probe:
        """See ``Actuator``."""
        knobs: list[Knob] = []
        reasons: list[str] = []
        for knob in GPU_KNOBS:
            try:
                self.range(uuid, knob)
                knobs.append(knob)
            except ActuatorError as error:
                reasons.append(str(error))
        can_write, found = self._permission(uuid)
        return Probe(
            actuator=self.name,
            knobs=tuple(knobs),
            can_write=can_write if knobs else False,
            needs=self.needs,
            found=found if knobs else reasons[0],
        )

    def range(self, uuid: str, knob: Knob) -> KnobRange:
        """See ``Actuator``."""
        if knob not in GPU_KNOBS:
            raise ActuatorError(
                f"{self.name} cannot change {knob!r}", f"it has {', '.join(GPU_KNOBS)}"
            )
        return self._ask(uuid, lambda handle: self._range(uuid, handle, knob))

    def agrees(self, uuid: str, setting: Setting) -> bool:
        """See ``Actuator``."""
        value = setting.value
        if value is None:
            return True
        if setting.knob == "limit":
            return super().agrees(uuid, setting)
        return any(self._runs_at_most(uuid, setting.knob, value, look) for look in range(_LOOKS))

    def write(self, uuid: str, setting: Setting) -> None:
        """See ``Actuator``."""
        accepted = self.range(uuid, setting.knob)
        accepted.check(setting.value)
        self._write(uuid, setting, accepted)
        check_limit(self, uuid, setting)

    def _runs_at_most(self, uuid: str, knob: Knob, clock_mhz: float, look: int) -> bool:
        if look:
            time.sleep(_LOOK_INTERVAL_S)
        kind = self._nvml.NVML_CLOCK_SM if knob == "clock" else self._nvml.NVML_CLOCK_MEM
        present_mhz = self._ask(uuid, lambda card: self._nvml.nvmlDeviceGetClockInfo(card, kind))
        return bool(present_mhz <= clock_mhz + _SAME_CLOCK_MHZ)

    def _ask(self, uuid: str, ask: Callable[[Any], Answer]) -> Answer:
        """Call ``ask`` with NVML's handle of a card, within a time limit.

        Raises:
            ActuatorError: if NVML reports an error, or does not answer in time.
        """
        nvml = self._nvml

        def opened() -> Answer:
            nvml.nvmlInit()
            try:
                return ask(nvml.nvmlDeviceGetHandleByUUID(uuid))
            finally:
                nvml.nvmlShutdown()

        try:
            return time_limit.within(time_limit.PATIENCE_S, opened, f"settings of {uuid}")
        except TimeoutError as error:
            raise ActuatorError(f"NVIDIA's driver does not answer ({error})") from error
        except nvml.NVMLError as error:
            raise _explained(nvml, error, uuid) from error

    def _range(self, uuid: str, handle: Any, knob: Knob) -> KnobRange:
        nvml = self._nvml
        if _is_divided(nvml, uuid, handle):
            raise ActuatorError(
                f"{uuid}: MIG is enabled, so that limits and clocks would change all instances",
                "disable MIG, or train without a power limit",
            )
        if knob == "limit":
            lowest_mw, highest_mw = nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
            default_mw = nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle)
            return KnobRange(
                knob="limit",
                lowest=watts_from_milliwatts(lowest_mw),
                highest=watts_from_milliwatts(highest_mw),
                present=watts_from_milliwatts(nvml.nvmlDeviceGetPowerManagementLimit(handle)),
                default=watts_from_milliwatts(default_mw),
            )
        steps = _clocks(nvml, handle, knob)
        return KnobRange(
            knob=knob, lowest=steps[0], highest=steps[-1], present=None, default=None, steps=steps
        )


def _is_divided(nvml: Any, uuid: str, handle: Any) -> bool:
    """Return whether a card is divided into MIG instances, or the UUID is that of an instance."""
    if uuid.startswith("MIG-"):
        return True
    try:
        is_divided, _pending = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError_NotSupported:
        return False
    return bool(is_divided)


def _clocks(nvml: Any, handle: Any, knob: Knob) -> tuple[float, ...]:
    """Return the clocks of the multiprocessors or of the memory, MHz, in ascending order.

    Clocks can be locked on cards since Volta (NVML API reference, nvmlDeviceSetGpuLockedClocks).
    Older cards list clocks, too.
    """
    if nvml.nvmlDeviceGetArchitecture(handle) < nvml.NVML_DEVICE_ARCH_VOLTA:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    memory_mhz = nvml.nvmlDeviceGetSupportedMemoryClocks(handle)
    if knob == "memory_clock":
        found = memory_mhz
    else:
        found = nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, max(memory_mhz, default=0))
    if not found:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return tuple(sorted(float(clock_mhz) for clock_mhz in set(found)))


def _explained(nvml: Any, error: Exception, uuid: str) -> ActuatorError:
    """Return an ``ActuatorError`` for an ``NVMLError``."""
    match getattr(error, "value", None):
        case nvml.NVML_ERROR_NO_PERMISSION:
            return ActuatorError(f"{uuid}: NVIDIA's driver does not permit the change", NEEDS_ADMIN)
        case nvml.NVML_ERROR_NOT_SUPPORTED:
            return ActuatorError(f"{uuid}: this GPU does not support the setting")
        case nvml.NVML_ERROR_LIBRARY_NOT_FOUND | nvml.NVML_ERROR_DRIVER_NOT_LOADED:
            return ActuatorError("NVIDIA's driver is not installed or not loaded")
        case nvml.NVML_ERROR_NOT_FOUND | nvml.NVML_ERROR_INVALID_ARGUMENT:
            return ActuatorError(f"no GPU with the UUID {uuid}", "'nvidia-smi -L' lists all GPUs")
    return ActuatorError(f"{uuid}: NVML reports: {error}")


NEEDS_ADMIN: Final = (
    "it needs root or the capability CAP_SYS_ADMIN (in a container: docker run --cap-add SYS_ADMIN)"
)
