"""Measures how often forecasts after a tenth of the steps contain what the whole run takes.

Each training has 2000 steps of about 0.1 s and 300 W in virtual time, with 2 % of noise per step in
time and in power. The meter measures the first tenth; the rest is computed. The time of a step, or
its power in every second training, follows one of these loads:

* flat: constant after a start that is at most twice as slow
* saturating: rises or falls by 5 to 50 % towards a final value, within a few to 50 % of the run
* rising, falling: by 10 to 50 % over the run, evenly, faster at first or faster at the end
* correlated: constant, with noise of 2 to 10 % that is correlated over 5 to 50 % of the run
* memory of a sixth: as correlated, over a sixth of the run

Except for the straight line, shapes and seeds are other ones than those by which the constants of
``extrapolation.py`` were chosen: exponential, hyperbolic and broken lines, and powers of the time.

Bars: for each load, the energy is in its 95 % interval in at least 85 % of the trainings, and the
duration in at least 85 % of those whose time per step follows the load.

``python -m tests.benchmarks.forecast [--quick] [--json FILE]``: 200 trainings of each load; 40 with
``--quick``.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.report.model.amounts import Forecast
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar

Array = NDArray[np.floating]

LOADS: Final = ("flat", "saturating", "rising", "falling", "correlated", "memory of a sixth")
HOLDS: Final = 0.85
STEPS: Final = 2000
# More than a tenth of the steps, so that the forecast is made.
_MEASURED: Final = 230
_STEP_S, _POWER_W, _NOISE = 0.1, 300.0, 0.02
_SEED: Final = 20_261_126


@dataclass(frozen=True, kw_only=True)
class Row:
    """The forecasts of one load.

    Attributes:
        load: name of the load.
        trainings: number of trainings.
        energy_holds: share of trainings whose energy is in its interval.
        duration_holds: share whose duration is in its interval, of the trainings whose time per
            step follows the load.
        error: median error of the forecast energy, as a share of the true energy.
        width: median half-width of the interval of the energy, as a share of the true energy.
    """

    load: str
    trainings: int
    energy_holds: float
    duration_holds: float
    error: float
    width: float

    def bars(self) -> Iterator[Bar]:
        """Yield the bars of this load."""
        for what, value in (("energy", self.energy_holds), ("duration", self.duration_holds)):
            yield Bar(name=f"{self.load}: {what} in its interval", value=value, at_least=HOLDS)


def shape(load: str, dice: np.random.Generator) -> Array:
    """Return the factor by which each step of a load takes more than the first."""
    x = (np.arange(STEPS) + 0.5) / STEPS
    if load == "flat":
        return np.where(x < dice.uniform(0.0, 0.005), 1.0 + dice.uniform(), 1.0)
    if load == "saturating":
        change = dice.uniform(0.05, 0.5) * float(dice.choice([-1.0, 1.0]))
        return 1.0 + change * np.tanh(x / dice.uniform(0.02, 0.3))
    if load in ("rising", "falling"):
        change = dice.uniform(0.1, 0.5) * (1.0 if load == "rising" else -1.0)
        shapes = (x, np.sin(np.pi * x / 2.0), (x + x**2) / 2.0)
        return 1.0 + change * shapes[dice.integers(len(shapes))]
    shortest, longest = (0.05, 0.5) if load == "correlated" else (1.0 / 6.0, 1.0 / 6.0)
    memory = float(np.exp(dice.uniform(np.log(shortest), np.log(longest))))
    return 1.0 + dice.uniform(0.02, 0.1) * correlated(memory * STEPS, dice)


def correlated(memory: float, dice: np.random.Generator) -> Array:
    """Return noise of variance 1 whose correlation decays exponentially over ``memory`` steps."""
    kept = np.exp(-1.0 / memory)
    noise = dice.normal(size=STEPS)
    noise[1:] *= np.sqrt(1.0 - kept**2)
    for i in range(1, STEPS):
        noise[i] += kept * noise[i - 1]
    return noise


def forecast(folder: Path, step_s: Array, power_w: Array) -> Forecast:
    """Return the forecast of a training whose steps take these times and powers."""
    clock = FakeClock()
    ends_s = clock.monotonic_s() + np.append(0.0, np.cumsum(step_s))
    used_j = np.append(0.0, np.cumsum(step_s * power_w))
    source = ScriptedSource(
        clock,
        power_w=lambda t_s: float(power_w[np.searchsorted(ends_s[1:-1], t_s)]),
        energy_j=lambda t_s: float(np.interp(t_s, ends_s, used_j)),
    )
    config = EnergyConfig(report_dir=folder)
    meter = EnergyMeter(config=config, sources=[source], clock=clock)
    with meter, meter.phase("train"):
        meter.plan(STEPS)
        for duration_s in step_s[:_MEASURED]:
            clock.advance(duration_s)
            meter.step()
    found = meter.report().forecast
    assert found is not None
    return found


def measured(load: str, trainings: int) -> Row:
    """Make forecasts of many trainings of one load."""
    dice = np.random.default_rng([_SEED, LOADS.index(load)])
    found = [_ratios(load, dice, follows=number % 2) for number in range(trainings)]
    energy, energy_error, duration, duration_error = np.array(found).T
    holds = np.abs(duration - 1.0) <= duration_error
    return Row(
        load=load,
        trainings=trainings,
        energy_holds=float(np.mean(np.abs(energy - 1.0) <= energy_error)),
        duration_holds=float(np.mean(holds[::2])),
        error=float(np.median(np.abs(energy - 1.0))),
        width=float(np.median(energy_error)),
    )


def _ratios(
    load: str, dice: np.random.Generator, *, follows: int
) -> tuple[float, float, float, float]:
    """Return energy, its error, duration and its error of a forecast, divided by the truth.

    Args:
        load: name of the load.
        dice: source of random numbers.
        follows: what follows the load: 0 for the time of a step, 1 for its power.
    """
    noise = np.exp(dice.normal(0.0, _NOISE, size=(2, STEPS)))
    noise[follows] *= shape(load, dice)
    step_s, power_w = _STEP_S * noise[0], _POWER_W * noise[1]
    with tempfile.TemporaryDirectory() as folder:
        made = forecast(Path(folder), step_s, power_w)
    energy_j, duration_s = float(step_s @ power_w), float(step_s.sum())
    return (
        made.energy_j / energy_j,
        made.energy_error_j / energy_j,
        made.duration_s / duration_s,
        made.duration_error_s / duration_s,
    )


def show(rows: Sequence[Row]) -> None:
    """Print the table."""
    print(f"{'':<20}{'energy holds':>14}{'duration holds':>16}{'error':>9}{'half-width':>12}")
    for row in rows:
        print(
            f"{row.load:<20}{100 * row.energy_holds:>12.1f} %{100 * row.duration_holds:>14.1f} %"
            f"{100 * row.error:>7.1f} %{100 * row.width:>10.1f} %"
        )


def main() -> int:
    """Print the table and return the exit status."""
    arguments = bars.parser(__doc__).parse_args()
    rows = [measured(load, 40 if arguments.quick else 200) for load in LOADS]
    show(rows)
    return bars.finish(
        "forecast",
        arguments,
        [bar for row in rows for bar in row.bars()],
        rows=[asdict(row) for row in rows],
    )


if __name__ == "__main__":
    sys.exit(main())
