"""Changes settings of simulated GPUs."""

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.inference.simulated.gpu import SimulatedGpu
from energy_callbacks.powercap.actuators.protocol import Actuator, Probe
from energy_callbacks.powercap.settings import GPU_KNOBS, Knob, KnobRange, Setting


class SimulatedActuator(Actuator):
    """Changes settings of simulated GPUs of this process.

    A simulated GPU ends with its process. Without GPUs, as in a watchdog, nothing can be restored,
    and writes have no effect.

    Args:
        gpus: the GPUs.
    """

    name = "simulated"

    def __init__(self, *gpus: SimulatedGpu) -> None:
        self._gpus = {gpu.uuid: gpu for gpu in gpus}

    def probe(self, uuid: str) -> Probe:
        """See ``Actuator``."""
        knobs: list[Knob] = []
        found = "simulated GPU"
        for knob in GPU_KNOBS:
            try:
                self.range(uuid, knob)
                knobs.append(knob)
            except ActuatorError as error:
                found = str(error)
        gpu = self._gpus.get(uuid)
        is_permitted = gpu is None or gpu.failures.has_permission
        return Probe(
            actuator=self.name,
            knobs=tuple(knobs),
            can_write=is_permitted and bool(knobs or not self._gpus),
            needs="a simulated GPU without injected failures",
            found=found if is_permitted else "no permission (simulated)",
        )

    def range(self, uuid: str, knob: Knob) -> KnobRange:
        """See ``Actuator``."""
        if uuid not in self._gpus:
            raise ActuatorError(f"no simulated GPU with the UUID {uuid} in this process")
        return self._gpus[uuid].range(knob)

    def read(self, uuid: str, knob: Knob) -> float | None:
        """See ``Actuator``."""
        return self.range(uuid, knob).present if self._gpus else None

    def agrees(self, uuid: str, setting: Setting) -> bool:
        """See ``Actuator``."""
        if not self._gpus or setting.value is None:
            return True
        if setting.knob == "limit":
            return self.read(uuid, "limit") == setting.value
        return setting.knob != "clock" or self._gpus[uuid].highest_mhz <= setting.value

    def write(self, uuid: str, setting: Setting) -> None:
        """See ``Actuator``."""
        if self._gpus:
            self.range(uuid, setting.knob)
            self._gpus[uuid].change(setting)
