"""Changes settings of NVIDIA cards through NVML, as root."""

from typing import Any

from energy_callbacks.core.units import milliwatts
from energy_callbacks.powercap.actuators import privilege
from energy_callbacks.powercap.actuators.nvidia_card import NEEDS_ADMIN, NvidiaActuator
from energy_callbacks.powercap.settings import KnobRange, Setting


class NvmlActuator(NvidiaActuator):
    """Calls the setters of NVML.

    A locked clock is an upper bound: an idle card may run at lower clocks.
    """

    name = "nvml"
    needs = NEEDS_ADMIN

    def _permission(self, uuid: str) -> tuple[bool | None, str]:  # noqa: ARG002 - as the base
        is_admin = privilege.is_admin()
        return is_admin, f"this process {'has' if is_admin else 'lacks'} CAP_SYS_ADMIN"

    def _write(self, uuid: str, setting: Setting, within: KnobRange) -> None:
        self._ask(uuid, lambda handle: _set(self._nvml, handle, setting, within))


def _set(nvml: Any, handle: Any, setting: Setting, within: KnobRange) -> None:
    value, is_clock = setting.value, setting.knob == "clock"
    if setting.knob == "limit":
        nvml.nvmlDeviceSetPowerManagementLimit(handle, round(milliwatts(value or 0.0)))
    elif value is None:
        kind = "Gpu" if is_clock else "Memory"
        getattr(nvml, f"nvmlDeviceReset{kind}LockedClocks")(handle)
    elif is_clock:
        nvml.nvmlDeviceSetGpuLockedClocks(handle, round(within.lowest), round(value))
    else:
        nvml.nvmlDeviceSetMemoryLockedClocks(handle, round(value), round(value))
