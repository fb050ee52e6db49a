"""The report's energy of phases whose edges are edges of the load, on sensors of known energy.

A training of 400 W pauses for validations of 100 W. The times of sensors are virtual.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.sensing.discovery import POWERCAP_VARIABLE
from energy_callbacks.testing import FakeClock
from tests.benchmarks.common.model_source import ModelSource
from tests.benchmarks.common.power_signal import PowerSignal
from tests.benchmarks.common.sensor_models import CARD_MODELS

TRAIN_W, VALIDATION_W, IDLE_W = 400.0, 100.0, 100.0
# A phase is entered up to this long after the edge of the load, s.
ENTRY_S = 0.0003
START_S = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A sensor, the lengths of the phases, and the largest error as a share of the truth.

    The error is ``None`` if only the interval is judged.
    """

    sensor: str
    train_s: float
    validation_s: float
    repeats: int
    error: float | None


ROWS = (
    Row(sensor="H200", train_s=0.25, validation_s=0.06, repeats=60, error=0.06),
    Row(sensor="A100", train_s=0.7, validation_s=0.3, repeats=25, error=0.06),
    Row(sensor="A100", train_s=2.0, validation_s=1.0, repeats=8, error=0.02),
    Row(sensor="V100", train_s=0.25, validation_s=0.06, repeats=60, error=0.08),
    Row(sensor="RTX 30xx", train_s=0.7, validation_s=0.3, repeats=25, error=None),
)
RAPL = Row(sensor="RAPL", train_s=2.0, validation_s=1.0, repeats=40, error=0.01)


def edges_of(row: Row) -> np.ndarray:
    """Edges of the load: start of each training, and of each validation, and the end."""
    lengths_s = [row.train_s, row.validation_s] * row.repeats
    return START_S + 1.5 + np.cumsum([0.0, *lengths_s])


def signal(edges_s: np.ndarray) -> PowerSignal:
    """The power: that of the phases between the edges, and that of idling before and after."""
    levels_w = [IDLE_W, *[TRAIN_W, VALIDATION_W] * (len(edges_s) // 2), IDLE_W]
    return PowerSignal(np.array([START_S - 5.0, *edges_s, edges_s[-1] + 5.0]), np.array(levels_w))


def train(meter: EnergyMeter, clock: FakeClock, edges_s: np.ndarray, dice: np.random.Generator):
    """Train and validate in turn; every phase is entered just after its edge."""
    late_s = dice.uniform(0.0, ENTRY_S, len(edges_s))
    for number, edge_s in enumerate((edges_s + late_s).tolist()):
        clock.advance(edge_s - clock.monotonic_s())
        if number % 2:
            meter.enter("validation")
        elif number:
            meter.leave("validation")
        else:
            meter.enter("train")
    meter.leave("train")
    clock.advance(1.2)
    meter.stop()


def judge(row: Row, meter: EnergyMeter, scope: str) -> None:
    """The energy of all validations is inside its interval, and as close as the row asks."""
    (phase,) = (phase for phase in meter.report().phases if phase.name == "validation")
    found = getattr(phase, scope)
    true_j = VALIDATION_W * row.validation_s * row.repeats
    assert abs(found.energy_j - true_j) <= found.error_j, (found, true_j)
    if row.error is not None:
        assert abs(found.energy_j - true_j) <= row.error * true_j, (found, true_j)
        assert found.is_resolved


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row.sensor}, {1e3 * row.validation_s:g} ms"
)
def test_validations_on_a_gpu(row: Row, seed: int, tmp_path: Path) -> None:
    """The validations of each row of the table have their true energy."""
    clock, dice, edges_s = FakeClock(START_S), np.random.default_rng(seed), edges_of(row)
    model = CARD_MODELS[row.sensor]
    streams = model.streams(signal(edges_s), START_S, edges_s[-1] + 2.0, dice)
    config = EnergyConfig(report_dir=tmp_path)
    meter = EnergyMeter(config=config, clock=clock, sources=[ModelSource(clock, streams)]).start()
    train(meter, clock, edges_s, dice)
    judge(row, meter, "gpu")


class PowercapClock(FakeClock):
    """A clock that writes the energy of a CPU package to a powercap folder as time passes.

    The memory of the package uses no energy; without its zone, a model would add its energy.

    Args:
        folder: the powercap folder, created with one package.
        power: power of the package.
    """

    def __init__(self, folder: Path, power: PowerSignal) -> None:
        super().__init__(START_S)
        package, memory = folder / "intel-rapl:0", folder / "intel-rapl:0:0"
        for zone, name in ((package, "package-0"), (memory, "dram")):
            zone.mkdir(parents=True)
            (zone / "name").write_text(f"{name}\n")
            (zone / "max_energy_range_uj").write_text("262143328850\n")
            (zone / "energy_uj").write_text("0\n")
        self._file = package / "energy_uj"
        self._power = power
        self._written_s = -float("inf")
        self.monotonic_s()

    def monotonic_s(self) -> float:
        """Return the time, after writing the energy up to the last millisecond."""
        if self._now_s != self._written_s:
            self._written_s = self._now_s
            energy_j = float(self._power.energy_to_j(np.floor(self._now_s * 1e3) / 1e3))
            self._file.write_text(f"{round(1e6 * energy_j)}\n")
        return self._now_s


def test_validations_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RAPL is read often enough near edges that validations of 1 s have their true energy."""
    edges_s = edges_of(RAPL)
    clock = PowercapClock(tmp_path / "powercap", signal(edges_s))
    monkeypatch.setenv(POWERCAP_VARIABLE, str(tmp_path / "powercap"))
    config = EnergyConfig(report_dir=tmp_path / "run")
    meter = EnergyMeter(config=config, clock=clock)._start(used_gpus=())
    train(meter, clock, edges_s, np.random.default_rng(0))
    judge(RAPL, meter, "host")
