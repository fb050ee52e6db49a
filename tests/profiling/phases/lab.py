"""A machine whose power is set by what the training does at the moment: truth is known by phase."""

import time

import pytest

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


def slow_training(torch, source):
    """A model and an optimizer whose passes draw known power."""

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            source.work("forward", 0.03)
            return x * 1.0

        @staticmethod
        def backward(context, gradient):
            source.work("backward", 0.05)
            return gradient

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 1)

        def forward(self, x):
            return Slow.apply(self.inner(x))

    class Optimizer(torch.optim.SGD):
        def step(self, closure=None):
            source.work("optimizer", 0.02)
            return super().step(closure)

    model = Model()
    return model, Optimizer(model.parameters(), lr=0.01)


def check(found):
    """A split of ``slow_training``: times and powers as they were set, and the sum that was."""
    assert found.refusal is None, found.sentence
    times_s = {phase.name.split(", ")[-1]: phase.time_s for phase in found.phases}
    assert times_s["forward"] == pytest.approx(0.03, rel=0.2)
    assert times_s["backward"] == pytest.approx(0.05, rel=0.2)
    found_w = {name.split(", ")[-1]: power_w for name, power_w in powers(found).items()}
    for name in ("forward", "backward", "optimizer"):
        assert found_w[name] == pytest.approx(LEVELS_W[name], rel=0.2), name
    assert found.split_j == pytest.approx(found.measured_j, rel=0.03)
