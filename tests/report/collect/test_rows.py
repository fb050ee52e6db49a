"""Series rows as columns: short rows, nulls, changing devices, and damaged values."""

import math

import numpy as np
import pytest

from energy_callbacks.report.collect.rows import RowLog

NAMES = ("energy_j", "seen_s", "power_w")


def test_a_row_that_ends_early_is_unknown_there() -> None:
    """Values come back under their names; what a row lacks or calls null is NaN."""
    log = RowLog()
    log.add(1.0, {"gpu0": [10.0, 0.9, 5.0], "cpu0": [1.0]})
    log.add(2.0, {"gpu0": [None, 1.9], "cpu0": []})
    log.add(3.0, {"gpu0": [30, 2.9, None], "cpu0": [3.0, 2.8, 7.0]})
    found = log.columns(NAMES)
    assert list(found) == ["gpu0", "cpu0"]
    gpu, cpu = found["gpu0"], found["cpu0"]
    assert gpu["t_s"].tolist() == [1.0, 2.0, 3.0]
    assert np.array_equal(gpu["energy_j"], [10.0, math.nan, 30.0], equal_nan=True)
    assert np.array_equal(gpu["power_w"], [5.0, math.nan, math.nan], equal_nan=True)
    assert np.array_equal(cpu["energy_j"], [1.0, math.nan, 3.0], equal_nan=True)
    assert cpu.seen_s.tolist() == [1.0, 2.0, 2.8]
    assert np.isnan(gpu["temperature_c"]).all()


def test_devices_that_come_and_go_keep_the_order_of_time() -> None:
    """gpu1 opens late and is lost early: the rows of gpu0 are still one column."""
    log = RowLog()
    for second in range(9):
        rows = {"gpu0": [float(second)]}
        log.add(float(second), rows | {"gpu1": [100.0]} if 3 <= second < 6 else rows)
    found = log.columns(NAMES)
    assert found["gpu0"]["energy_j"].tolist() == [float(second) for second in range(9)]
    assert found["gpu1"]["t_s"].tolist() == [3.0, 4.0, 5.0]


@pytest.mark.parametrize("damage", [["x"], [[1.0]], [{}], [None, "x"]])
def test_what_is_no_number_is_refused_and_leaves_no_trace(damage: list[object]) -> None:
    """A damaged line raises; the lines around it are whole."""
    log = RowLog()
    log.add(1.0, {"gpu0": [1.0]})
    with pytest.raises((TypeError, ValueError)):
        log.add(2.0, {"gpu0": [5.0, *damage]})  # type: ignore[list-item]
    log.add(3.0, {"gpu0": [3.0, 2.0, 4.0, 99.0, 99.0]})
    found = log.columns(NAMES)["gpu0"]
    assert found["energy_j"].tolist() == [1.0, 3.0]
    assert found["power_w"][1] == 4.0
