"""The same short training on any machine, and what its report has."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.settings.checks import Devices
from energy_callbacks.report import EnergyReport
from energy_callbacks.testing import FakeClock, InMemoryOutput
from tests.vendors.quantities import names_in

EPOCHS: Final = 2
STEPS: Final = 100
STEP_S: Final = 0.2
VALIDATION_S: Final = 6.0
Spans = dict[str, list[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Trained:
    """A finished training.

    Attributes:
        report: its report.
        spans: time spans of each phase, and of the whole run under ``run``.
        tags: names of the metrics that were logged.
    """

    report: EnergyReport
    spans: Spans
    tags: frozenset[str]

    @property
    def names(self) -> set[str]:
        """Return the names of all metrics and of all known values of the report."""
        return names_in(self.report.to_dict()) | self.tags


def train(clock: FakeClock, folder: Path, devices: Devices) -> Trained:
    """Train two epochs with validation in a plain loop, in 52 s of virtual time."""
    output = InMemoryOutput()
    config = EnergyConfig(country="DEU", devices=devices, report_dir=folder, run_name="same")
    spans: Spans = {"train": [], "validation": []}
    meter = EnergyMeter(config=config, clock=clock, outputs=[output]).start()
    start_s = clock.monotonic_s()
    step = 0
    for epoch in range(EPOCHS):
        begin_s = clock.monotonic_s()
        with meter.phase("train"):
            for step in range(epoch * STEPS + 1, (epoch + 1) * STEPS + 1):
                clock.advance(STEP_S)
                meter.step(samples=8, tokens=1024)
                if step % 10 == 0:
                    meter.log(step)
        middle_s = clock.monotonic_s()
        with meter.phase("validation"):
            clock.advance(VALIDATION_S)
        meter.record_metrics({"loss": 0.5 / (epoch + 1)}, step=step, epoch=epoch)
        meter.epoch(epoch)
        spans["train"].append((begin_s, middle_s))
        spans["validation"].append((middle_s, clock.monotonic_s()))
    meter.stop()
    spans["run"] = [(start_s, clock.monotonic_s())]
    tags = frozenset(tag for _, row in output.rows for tag in row)
    return Trained(meter.report(), spans, tags)
