"""Lines of steps, series and totals, from scripted sensors on virtual time."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from energy_callbacks.accounting.measured_lines import mean_power_w
from energy_callbacks.core.records import Reading
from energy_callbacks.testing import FakeClock, ReplaySource
from tests.accounting import step_events
from tests.accounting.books import START_S, Books, energy_j, wave, wave_j, wave_w
from tests.sensing.loads import channel


def test_steps_touch_and_count_everything_once(trained: Books) -> None:
    """Pooled steps are adjacent from the start; samples and tokens sum to the reported ones."""
    pools = trained.of("steps")
    assert pools[0]["start_s"] == 0.0
    assert all(a["end_s"] == b["start_s"] for a, b in pairwise(pools))
    assert sum(pool["steps"] for pool in pools) == 120
    assert sum(pool["samples"] for pool in pools) == 120 * 8
    assert sum(pool["tokens"] for pool in pools) == 120 * 512
    assert [pool["last_step"] for pool in pools] == list(np.cumsum([p["steps"] for p in pools]))
    assert all(pool["end_s"] - pool["start_s"] >= 0.5 for pool in pools[:-1])
    assert all(pool["data_wait_s"] is None for pool in pools)


def test_series_rows_tell_power_and_energy_so_far(trained: Books) -> None:
    """One row every half second, with the cumulative energy of the closed form and its slope."""
    rows, lines = trained.rows("gpu0"), trained.of("series")
    assert [line["t_s"] for line in lines[:-1]] == pytest.approx(np.arange(1, len(rows)) * 0.5)
    for row in rows[:-1]:
        truth_j = wave_j(START_S + row["seen_s"]) - wave_j(START_S)
        assert row["energy_j"] == pytest.approx(truth_j, abs=1e-4)
    powers = [row["power_w"] for row in rows[:-1]]
    times = [START_S + line["t_s"] - 0.25 for line in lines[:-1]]
    assert powers == pytest.approx([wave_w(t_s) for t_s in times], abs=12.0)
    last = rows[-1]["energy_j"]
    assert last == pytest.approx(energy_j(trained.of("totals")[0]), rel=1e-9)


def test_samples_that_nobody_counts_are_null(tmp_path: Path, clock: FakeClock) -> None:
    """Steps without a batch size have ``null`` samples; waits need marks of data."""
    books = Books(tmp_path, wave(clock), clock=clock)
    books.enter("train")
    for _ in range(10):
        clock.advance(0.25)
        step_events.ready(books.recorder.steps, clock.monotonic_s())
        clock.advance(0.75)
        books.step(samples=None)
    books.finish()
    pools = books.of("steps")
    assert all(pool["samples"] is None for pool in pools)
    assert sum(pool["data_wait_s"] for pool in pools) == pytest.approx(9 * 0.25)


def test_gauges_stand_in_the_row_of_their_half_second(tmp_path: Path, clock: FakeClock) -> None:
    """A row has means of utilisation and clock, and maxima of memory and temperature."""
    busy, memory = channel("utilisation", "gauge"), channel("memory_used", "gauge")
    readings = [
        Reading(of, START_S + 0.6 + 0.1 * i, value)
        for of, values in ((busy, (0.2, 0.4)), (memory, (5e9, 3e9)))
        for i, value in enumerate(values)
    ]
    books = Books(
        tmp_path, ReplaySource(clock, [busy, memory], readings, interval_s=0.1), clock=clock
    )
    clock.advance(3.0)
    books.finish()
    [row] = books.rows("gpu0")
    known = {name: value for name, value in row.items() if value is not None}
    assert known == {"utilisation": pytest.approx(0.3), "memory_used_bytes": 5e9}
    assert list(row)[-1] == "memory_used_bytes"


def test_a_sensor_that_falls_silent_has_no_power_and_keeps_its_energy(
    tmp_path: Path, clock: FakeClock
) -> None:
    """Power without readings is ``null``, not zero; cumulative energy does not decrease."""
    of = channel("power", "gauge", period_s=0.1)
    readings = [Reading(of, START_S + 0.1 * i, 100.0) for i in range(41)]
    books = Books(tmp_path, ReplaySource(clock, [of], readings), clock=clock)
    clock.advance(20.0)
    books.finish()
    rows = books.rows("gpu0")
    assert [row["power_w"] for row in rows[:8]] == pytest.approx([100.0] * 8)
    assert len(rows) > 30
    assert all("power_w" not in row for row in rows[8:])
    assert [row["energy_j"] for row in rows[8:]] == pytest.approx([400.0] * len(rows[8:]))
    assert books.of("totals")[0]["energy"]["gpu0"]["coverage"] == pytest.approx(0.2)


def test_mean_power_is_of_the_share_that_was_seen() -> None:
    """300 J in 10 s with a coverage of 30 % are 100 W; without readings there is no power."""
    assert mean_power_w(300.0, 0.3, 10.0) == pytest.approx(100.0)
    assert mean_power_w(None, 0.0, 10.0) is None


def test_the_total_so_far_follows_each_window(tmp_path: Path, clock: FakeClock) -> None:
    """Lines ``so_far`` come when a tenth of the time has passed, every 10 s, and after windows."""
    books = Books(tmp_path, wave(clock), clock=clock)
    clock.advance(200.0)
    now_s = clock.monotonic_s()
    books.recorder.window("checkpoint", now_s - 1.0, now_s)
    clock.advance(1.5)
    kinds = [line.get("kind", line["type"]) for line in books.lines]
    assert "so_far" in kinds[kinds.index("window") :]
    (window,) = books.of("window")
    ends_s = [line["t_s"] for line in books.of("so_far")]
    assert window["end_s"] <= ends_s[-1] < ends_s[-2] + 9.0
    gaps_s = [after - before for before, after in pairwise(ends_s[:-1])]
    assert max(gaps_s[-5:]) <= 11.0
    assert all(gap_s <= 0.1 * end_s + 1.0 for gap_s, end_s in zip(gaps_s, ends_s[1:], strict=False))
