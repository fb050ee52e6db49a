"""A shared library with NVML's interface that plays known power signals through chosen sensors.

The real ``pynvml`` and the tools on it work unmodified; what they should have measured is known
exactly, because every answer is a pure function of the scenario and of time::

    card = h200(Square(low_w=100.0, high_w=400.0, period_s=0.23))
    nvml = fake_nvml(Scenario(cards=(card,)))  # the fixture; virtual time begins at the epoch
    pynvml.nvmlInit()
    nvml.time.advance(5.0)
    nvml.energy_j(0, nvml.scenario.epoch_unix_s, nvml.time.unix_s())  # the truth
    subprocess.run([...], env=nvml.env())  # a child that sees the same
"""

from tests.fake_nvml.build import CompileError, build
from tests.fake_nvml.changes import Change, Settings
from tests.fake_nvml.library import FakeNvml, VirtualTime, env, reset_pynvml
from tests.fake_nvml.model import PowerModel
from tests.fake_nvml.presets import a100, average_1s, h200, ideal, l4, pascal, t4, v100
from tests.fake_nvml.scenario import (
    Card,
    Fault,
    Mig,
    Process,
    Scenario,
    card_uuid,
)
from tests.fake_nvml.sensor import Buffer, Latency, Sensor
from tests.fake_nvml.signals import Constant, Recorded, Signal, Sine, Square, Staircase

__all__ = [
    "Buffer",
    "Card",
    "Change",
    "CompileError",
    "Constant",
    "FakeNvml",
    "Fault",
    "Latency",
    "Mig",
    "PowerModel",
    "Process",
    "Recorded",
    "Scenario",
    "Sensor",
    "Settings",
    "Signal",
    "Sine",
    "Square",
    "Staircase",
    "VirtualTime",
    "a100",
    "average_1s",
    "build",
    "card_uuid",
    "env",
    "h200",
    "ideal",
    "l4",
    "pascal",
    "reset_pynvml",
    "t4",
    "v100",
]
