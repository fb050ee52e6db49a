"""A machine whose power is set by what the training does at the moment: truth is known by phase."""

import time

from energy_callbacks.config import EnergyConfig
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.records import Channel, Device, Reading, Sensor

LEVELS_W = {"data wait": 60.0, "forward": 150.0, "backward": 300.0, "optimizer": 90.0}
REST_W = 40.0
_DEVICE = Device(key="cpu0", kind="cpu", scope="host", name="scripted processor")


class LiveSource:
    """Reads each 10 ms what the training has said that it draws."""

    name = "live"
    interval_s = 0.01

    def __init__(self):
        self.power_w = REST_W
        self.channel = Channel(
            device=_DEVICE,
            quantity="power",
            kind="gauge",
            sensor=Sensor(name="live", period_s=0.01),
        )

    def open(self):
        return [self.channel]

    def read(self):
        return [Reading(self.channel, time.monotonic(), self.power_w)]

    def close(self):
        pass

    def work(self, phase, duration_s):
        """Draw what a phase draws, for a while."""
        before_w, self.power_w = self.power_w, LEVELS_W.get(phase, REST_W)
        time.sleep(duration_s)
        self.power_w = before_w


def meter(folder, source, *profilers):
    """A meter that reads the live source alone."""
    return EnergyMeter(
        config=EnergyConfig(report_dir=folder), sources=[source], profilers=profilers
    )


def powers(found):
    """Power of each phase of a split, W."""
    return {phase.name: phase.energy_j / phase.time_s for phase in found.phases}
