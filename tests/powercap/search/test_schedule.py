"""Schedules of caps: what is read, and what is refused."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from energy_callbacks.powercap.search.schedule import CapSchedule

NEW_YEAR_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def schedule(folder: Path, *lines: str) -> CapSchedule:
    """Return the schedule in a file with these lines."""
    path = folder / "caps.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return CapSchedule.read(path)


def test_a_cap_is_valid_until_the_next_row(tmp_path: Path) -> None:
    """Before the first row and in an empty cell there is none; the last row has no end."""
    found = schedule(
        tmp_path,
        "Time,cap_W",
        "2026-01-01T01:00Z,300",
        "2026-01-01T03:00+01:00,",
        "",
        "2026-01-01T03:00Z,250.5",
    )
    hours = (0.0, 1.0, 1.99, 2.0, 3.0, 99.0)
    caps = [found.at(NEW_YEAR_S + 3600.0 * hour) for hour in hours]
    assert caps == [None, 300.0, 300.0, None, 250.5, 250.5]


WRONG = [
    (["time,cap_w", "2026-01-01T01:00Z,low"],
     r"caps.csv, line 2, column 2 \(cap_w\): 'low' is not a number; leave the cell empty for"),
    (["time,cap_w", "2026-01-01T01:00Z,0"], r"line 2, column 2 .* positive number of .*'0'"),
    (["time,cap_w", "2026-01-01T01:00Z,inf"], r"line 2, column 2 .* positive number of watts"),
    (["time,cap_w", "08:00,1"], r"line 2, column 1 \(time\): '08:00' is not a time"),
    (["time,cap_w", "2026-01-01T01:00,1"], r"line 2, column 1 .* has no time zone"),
    (["time,cap_w", "2026-01-01T01:00Z,1", "2026-01-01T01:00Z,1"], r"line 3, column 1 .*not later"),
    (["time,intensity"], r"line 1: no column has power caps, got 'time,intensity'; .*'cap_w'"),
    (["time,cap_w"], r"has no row; add lines such as"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "message"), WRONG)
def test_a_wrong_file_is_refused(tmp_path: Path, lines: list[str], message: str) -> None:
    """The message has the line and the column."""
    with pytest.raises(ValueError, match=message):
        schedule(tmp_path, *lines)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """The message says what the file was for."""
    with pytest.raises(
        ValueError, match=r"the file with power caps cannot be read: .*No such file"
    ):
        CapSchedule.read(tmp_path / "missing.csv")
