"""Lets a simulated GPU follow a clock, and reads its sensor as a source of an ``EnergyMeter``."""

from collections.abc import Sequence
from typing import Final

from energy_callbacks.core.errors import ActuatorError, SourceLost
from energy_callbacks.core.records import Channel, Device, Reading, Sensor
from energy_callbacks.inference.simulated.gpu import SimulatedGpu
from energy_callbacks.inference.simulated.state import SENSOR_S, STEP_S, WINDOWS_S
from energy_callbacks.sensing.clock import Clock


class SimulatedSource:
    """Power and energy of a simulated GPU, whose time is that of a clock.

    Before each reading, the GPU advances to the time of the clock.

    Args:
        gpu: the GPU; it must not be advanced by others.
        clock: its time, such as a ``FakeClock``.
    """

    name: Final = "simulated"
    interval_s: Final = SENSOR_S

    def __init__(self, gpu: SimulatedGpu, clock: Clock) -> None:
        self._gpu = gpu
        self._clock = clock
        self._start_s = clock.monotonic_s() - gpu.t_s
        device = Device(
            key="gpu0",
            kind="gpu",
            scope="gpu",
            name=gpu.card.name,
            origin="estimated",
            uuid=gpu.uuid,
            limit_w=gpu.card.limits_w[1],
            notes=("simulated GPU",),
        )
        sensor = Sensor(
            name="simulated GPU", period_s=SENSOR_S, window_s=WINDOWS_S[gpu.card.sensor]
        )
        self._power = Channel(device=device, quantity="power", kind="gauge", sensor=sensor)
        self._energy = Channel(device=device, quantity="energy", kind="counter", sensor=sensor)

    def open(self) -> Sequence[Channel]:
        """See ``Source``."""
        return (self._power, self._energy)

    def read(self) -> Sequence[Reading]:
        """See ``Source``."""
        t_s = self._clock.monotonic_s()
        try:
            self.follow()
        except ActuatorError as error:
            raise SourceLost(str(error)) from error
        return (
            Reading(self._power, t_s, self._gpu.sensor_w),
            Reading(self._energy, t_s, self._gpu.energy_j),
        )

    def follow(self) -> None:
        """Advance the GPU to the time of the clock.

        Raises:
            ActuatorError: if the GPU is lost.
        """
        missing_s = self._clock.monotonic_s() - self._start_s - self._gpu.t_s
        if round(missing_s / STEP_S) >= 1:
            self._gpu.advance(missing_s)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
