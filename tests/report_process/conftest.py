"""What the tests of the report process share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.trackers.fixtures import (  # noqa: F401 - fixtures
    wandb_folder,
    wandb_offline,
)


@pytest.fixture
def trained(tmp_path: Path) -> Callable[..., Path]:
    """Trains for 10 s at 100 W without a report, and returns the run folder."""

    def train(name: str = "energy") -> Path:
        clock = FakeClock()
        source = ScriptedSource(clock, power_w=lambda t_s: 100.0)
        config = EnergyConfig(report_dir=tmp_path / name)
        meter = EnergyMeter(config=config, sources=[source], clock=clock)
        with meter, meter.phase("train"):
            clock.advance(10.0)
            meter.step(samples=20)
        return tmp_path / name

    return train
