"""The trainings with phases that ``calibration`` judges: a design of cells, and named ones."""

from dataclasses import replace
from typing import Final

from tests.benchmarks.common.pairwise import Choice, pairwise
from tests.benchmarks.common.phase_runs import PhaseCell
from tests.benchmarks.common.sensor_models import CARD_MODELS

FACTORS: Final = {
    "sensor": tuple(CARD_MODELS),
    "validation_s": (0.03, 0.06, 0.12, 0.3, 0.7, 2.0),
    "repeats": (20, 60, 200),
    "load": ("flat", "staircase"),
    "delay": ((0.0, False), (0.03, False), (0.12, False), (0.0, True), (0.03, True), (0.12, True)),
    "length_spread": (0.0, 0.03),
    "share": (0.1, 0.25, 0.5),
}
# Readings a second, which determine how long a run takes, of sensors with fewer or more than most.
_READINGS: Final = {"A100": 20.0, "RTX 30xx": 20.0, "RAPL": 20.0, "V100": 100.0}
_MOST_HAVE: Final = 50.0
# A training may have this many more readings for one more pair of levels.
_COSTLY: Final = 2000.0

# The cells of quick runs: lengths of the issue that asked for this benchmark ("250/60" are the
# milliseconds of train and validation), and one or two more conditions for each sensor.
NAMED: Final[dict[str, PhaseCell]] = {
    "H200 250/60": PhaseCell(sensor="H200", validation_s=0.06, repeats=60, share=0.06 / 0.31),
    "H200 short, delayed": PhaseCell(
        sensor="H200", validation_s=0.03, repeats=60, share=0.5, delay_s=0.03, length_spread=0.03
    ),
    "H200 staircase": PhaseCell(
        sensor="H200", validation_s=0.12, repeats=20, load="staircase", length_spread=0.03
    ),
    "H200 other, staircase, far ahead": PhaseCell(
        sensor="H200 other",
        validation_s=0.3,
        repeats=20,
        load="staircase",
        delay_s=0.12,
        is_delay_jittered=True,
        length_spread=0.03,
    ),
    "H200 other, delayed": PhaseCell(
        sensor="H200 other", validation_s=0.12, repeats=20, share=0.5, delay_s=0.03
    ),
    "A100 700/300": PhaseCell(sensor="A100", validation_s=0.3, repeats=25, share=0.3),
    "A100 2000/1000": PhaseCell(sensor="A100", validation_s=1.0, repeats=20, share=1.0 / 3.0),
    "V100 250/60": PhaseCell(sensor="V100", validation_s=0.06, repeats=60, share=0.06 / 0.31),
    "V100 staircase, delayed": PhaseCell(
        sensor="V100",
        validation_s=0.12,
        repeats=20,
        load="staircase",
        delay_s=0.03,
        is_delay_jittered=True,
        length_spread=0.03,
    ),
    "RTX 30xx 700/300": PhaseCell(sensor="RTX 30xx", validation_s=0.3, repeats=25, share=0.3),
    "Pascal, delayed": PhaseCell(
        sensor="Pascal", validation_s=0.06, repeats=60, delay_s=0.03, length_spread=0.03
    ),
    "RAPL": PhaseCell(sensor="RAPL", validation_s=0.3, repeats=20, length_spread=0.03),
}

# Cells of full runs in which CUDA events measure the edges, of a host that is far ahead by times
# that vary.
_DATED: Final = tuple(
    PhaseCell(
        sensor=sensor,
        validation_s=validation_s,
        repeats=repeats,
        load=load,
        delay_s=0.12,
        is_delay_jittered=True,
        length_spread=0.03,
        is_dated=True,
    )
    for sensor, validation_s, repeats in (
        ("H200", 0.03, 60), ("H200", 0.3, 20), ("H200 other", 0.06, 60), ("A100", 0.3, 20),
        ("V100", 0.06, 60), ("RTX 30xx", 0.7, 20),
    )
    for load in FACTORS["load"]
)  # fmt: skip
DATED: Final = {cell.name: cell for cell in _DATED}

# For fitting: factors of lengths and delays, time between the steps of a staircase, and power.
_FIT_LENGTHS, _FIT_DELAYS, _FIT_STAIR_S = 1.13, 0.77, 0.085
_FIT_LEVELS_W: Final = (("idle", 70.0), ("train", 330.0), ("validation", 130.0))


def design() -> dict[str, PhaseCell]:
    """Return cells in which every pair of levels occurs, preferably short ones, by their name."""
    cells = [_cell(choice) for choice in pairwise(FACTORS, _cost)]
    return {cell.name: cell for cell in cells}


def _cell(choice: Choice) -> PhaseCell:
    delay_s, is_jittered = choice["delay"]
    others = {name: level for name, level in choice.items() if name != "delay"}
    return PhaseCell(**others, delay_s=delay_s, is_delay_jittered=is_jittered)


def choice_of(cell: PhaseCell) -> Choice:
    """Return the levels of a cell of the design."""
    choice = {name: getattr(cell, name) for name in FACTORS if name != "delay"}
    return choice | {"delay": (cell.delay_s, cell.is_delay_jittered)}


def _cost(choice: Choice) -> float:
    return _cell(choice).duration_s * _READINGS.get(choice["sensor"], _MOST_HAVE) / _COSTLY


def for_fitting(cell: PhaseCell) -> PhaseCell:
    """Return a cell like this one with other lengths, delays and levels."""
    return replace(
        cell,
        validation_s=_FIT_LENGTHS * cell.validation_s,
        delay_s=_FIT_DELAYS * cell.delay_s,
        stair_s=_FIT_STAIR_S,
        levels_w=_FIT_LEVELS_W,
    )
