"""A machine whose power depends on the phase of the training, so that the truth is known."""

import time

import pytest

from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.records import Device
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.testing import FakeClock, ScriptedSource

LEVELS_W = {"data wait": 60.0, "forward": 150.0, "backward": 300.0, "optimizer": 90.0}
REST_W = 40.0
TIMES_S = {"forward": 0.03, "backward": 0.05, "optimizer": 0.02}
_DEVICE = Device(key="cpu0", kind="cpu", scope="host", name="scripted processor")


class Machine:
    """Draws the power of the current phase, in virtual time or, if live, in real time.

    The sensor is read every 17 ms, which is not a divisor of the step of 100 ms.
    """

    def __init__(self, *, is_live=False):
        self.power_w = REST_W
        self.clock = SystemClock() if is_live else FakeClock()
        self._pass = time.sleep if is_live else self.clock.advance

    def work(self, phase, duration_s):
        """Draw the power of a phase for some time."""
        before_w, self.power_w = self.power_w, LEVELS_W.get(phase, REST_W)
        self._pass(duration_s)
        self.power_w = before_w

    def meter(self, folder, *profilers):
        """Return a meter of this machine."""
        source = ScriptedSource(
            self.clock, power_w=lambda _: self.power_w, device=_DEVICE, interval_s=0.017
        )
        return EnergyMeter(
            config=EnergyConfig(report_dir=folder),
            sources=[source],
            clock=self.clock,
            profilers=profilers,
        )


def training(torch, machine):
    """Return a model and an optimizer whose phases draw known power for known times."""

    class Working(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            machine.work("forward", TIMES_S["forward"])
            return x * 1.0

        @staticmethod
        def backward(context, gradient):
            machine.work("backward", TIMES_S["backward"])
            return gradient

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 1)

        def forward(self, x):
            return Working.apply(self.inner(x))

    class Optimizer(torch.optim.SGD):
        def step(self, closure=None):
            machine.work("optimizer", TIMES_S["optimizer"])
            return super().step(closure)

    model = Model()
    return model, Optimizer(model.parameters(), lr=0.01)


def check(found, *, batches=1):
    """Check that a split of ``training`` has the true times, powers and sum."""
    assert found.refusal is None, found.sentence
    phases = {phase.name.split(", ")[-1]: phase for phase in found.phases}
    for name, time_s in TIMES_S.items():
        each_s = time_s if name == "optimizer" else batches * time_s
        assert phases[name].time_s == pytest.approx(each_s, rel=1e-6), name
        power_w = phases[name].energy_j / phases[name].time_s
        assert power_w == pytest.approx(LEVELS_W[name], rel=0.03), name
    assert found.split_j == pytest.approx(found.measured_j, rel=0.03)
