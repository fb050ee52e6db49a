"""Changes settings of NVIDIA cards through NVML, as root."""

from typing import Any

from energy_callbacks.core.units import milliwatts
from energy_callbacks.powercap.actuators import privilege
from energy_callbacks.powercap.actuators.nvidia_card import NEEDS_ADMIN, NvidiaActuator
from energy_callbacks.powercap.actuators.protocol import Probe
from energy_callbacks.powercap.settings import KnobRange, Setting


class NvmlActuator(NvidiaActuator):
    """Calls the setters of NVML.

    A locked clock is an upper bound: an idle card may run at lower clocks.
    """

    name = "nvml"

    def probe(self, uuid: str) -> Probe:
        """See ``Actuator``."""
        knobs, reason = self.supported(uuid)
        is_admin = privilege.is_admin()
        found = "this process has CAP_SYS_ADMIN" if is_admin else "this process lacks CAP_SYS_ADMIN"
        return Probe(
            actuator=self.name,
            knobs=knobs,
            can_write=bool(knobs) and is_admin,
            needs=NEEDS_ADMIN,
            found=reason or found,
        )

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
