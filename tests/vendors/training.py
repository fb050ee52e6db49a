"""The same short training on any machine, and what its report has."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.config import Devices
from energy_callbacks.report import EnergyReport
from energy_callbacks.testing import FakeClock, InMemoryOutput

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


def known(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all values in JSON that are known; indices of lists are left out."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from known(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from known(inner, path)
    elif value is not None:
        yield path
