"""Journals that are complete, cut off, damaged, too new, or not writable."""

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.journal import JournalWriter
from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.records import Device, Energy, Sensor
from tests.sensing.loads import channel

HEADER = {"type": "header", "format": journal.FORMAT, "version": journal.VERSION}


def written(path: Path, *records: dict[str, Any]) -> Path:
    """A journal with these records."""
    writer = JournalWriter(path)
    for record in (HEADER, *records):
        writer.write(record)
    writer.close()
    return path


def event(number: int) -> dict[str, Any]:
    """A record with a number."""
    return {"type": "event", "kind": "mark", "t_s": float(number), "name": f"mark {number}"}


def test_what_was_written_comes_back_in_order(tmp_path: Path) -> None:
    """Records are read as they were written, beginning with the header."""
    path = written(tmp_path / "a.jsonl", event(1), event(2))
    assert list(journal.read(path)) == [HEADER, event(1), event(2)]


def test_what_was_flushed_is_in_the_file_at_once(tmp_path: Path) -> None:
    """A process that is killed after a flush loses none of the flushed lines."""
    writer = JournalWriter(tmp_path / "a.jsonl")
    writer.write(HEADER)
    writer.write(event(1))
    writer.flush()
    assert list(journal.read(tmp_path / "a.jsonl")) == [HEADER, event(1)]
    writer.close()
    writer.close()
    writer.write(event(2))
    assert list(journal.read(tmp_path / "a.jsonl")) == [HEADER, event(1)]


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    """Wherever the last line is cut off, all lines before it are read."""
    whole = written(tmp_path / "a.jsonl", event(1), event(2)).read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for length in range(last, len(whole) - 1):
        (tmp_path / "cut.jsonl").write_bytes(whole[:length])
        assert list(journal.read(tmp_path / "cut.jsonl")) == [HEADER, event(1)]


@pytest.mark.parametrize("damage", [b"\x00" * 40, b"\xff\xfe", b"{}", b"[1]", b'"x"', b"", b"{{"])
def test_a_damaged_line_is_left_out(tmp_path: Path, damage: bytes) -> None:
    """A damaged line does not affect the lines around it."""
    lines = written(tmp_path / "a.jsonl", event(1), event(2)).read_bytes().splitlines()
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([*lines[:2], damage, *lines[2:]]))
    assert list(journal.read(tmp_path / "a.jsonl")) == [HEADER, event(1), event(2)]


@settings(max_examples=50)
@example(value={"a": [math.nan, {"b": [-math.inf, 0.5]}], "c": "\n\u2028", "d": 2**64, "e": True})
@given(value=st.recursive(
    st.floats() | st.integers() | st.none() | st.text() | st.booleans(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
))  # fmt: skip
def test_no_value_breaks_a_line(value: Any) -> None:
    """Any nesting of values is one line of strict JSON, with NaN and infinity as ``null``."""
    line = json.dumps(journal._plain({"type": "event", "value": value}))
    found = json.loads(line, parse_constant=pytest.fail)["value"]
    assert repr(found) == repr(nulled(value))


def nulled(value: Any) -> Any:
    """A value after conversion to JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: nulled(item) for key, item in value.items()}
    return [nulled(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.float32("nan"), None),
        (np.float64("inf"), None),
        (Decimal("1.5"), "1.5"),
        (Path("runs/a"), "runs/a"),
        ((1, 2), [1, 2]),
    ],
)
def test_numbers_of_other_libraries_are_numbers(tmp_path: Path, value: Any, expected: Any) -> None:
    """A numpy count becomes a number; unknown types become text, without an exception."""
    path = written(tmp_path / "a.jsonl", {"type": "event", "value": value})
    assert list(journal.read(path))[1]["value"] == expected


def test_a_newer_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """The message names the file, both versions, and the command to upgrade."""
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(HEADER | {"version": journal.VERSION + 1}) + "\n")
    with pytest.raises(JournalError, match=rf"{path}.*version 3.*up to 2.*pip install --upgrade"):
        list(journal.read(path))


@pytest.mark.parametrize("text", ["", "hello\n", '{"type": "event"}\n', "[]\n", '{"a": 1}\n'])
def test_another_file_is_no_journal(tmp_path: Path, text: str) -> None:
    """A file without the header of a journal is refused, with its name."""
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(JournalError, match=r"a\.jsonl is not a journal"):
        list(journal.read(path))


# --- writing fails


def test_a_full_disk_is_counted_and_never_raises() -> None:
    """Lines that do not fit on the disk are counted as failures."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    writer = JournalWriter(Path("/dev/full"))
    for number in range(5000):
        writer.write(event(number))
        writer.flush()
    writer.close()
    writer.close()
    assert writer.failures >= 5000
    assert writer.last_error is not None
    assert writer.last_error.errno == 28


class FillsUp:
    """A file on a disk that is full for some time.

    Args:
        room: for each call of ``write``, how many bytes fit; ``None`` for all of them. A call for
            which none fit fails.
    """

    def __init__(self, *room: int | None) -> None:
        self.room, self.content, self.calls = list(room), b"", 0

    def write(self, content: bytearray) -> int:
        self.calls += 1
        fits = self.room.pop(0) if self.room else None
        if fits == 0:
            raise OSError(28, "No space left on device")
        self.content += content[:fits]
        return len(content[:fits])

    def close(self) -> None:
        raise OSError(28, "No space left on device")


def on_disk(tmp_path: Path, disk: FillsUp) -> JournalWriter:
    """A writer on a disk that is full for some time."""
    writer = JournalWriter(tmp_path / "a.jsonl")
    assert writer._file is not None
    writer._file.close()
    writer._file = disk  # type: ignore[assignment]
    return writer


def records(tmp_path: Path, disk: FillsUp) -> list[dict[str, Any]]:
    """The records on a disk."""
    (tmp_path / "a.jsonl").write_bytes(disk.content)
    return list(journal.read(tmp_path / "a.jsonl"))


def test_writing_goes_on_where_there_is_room_again(tmp_path: Path) -> None:
    """A line that was written partially is completed when there is space again."""
    disk = FillsUp(None, 20, 0, None)
    writer = on_disk(tmp_path, disk)
    for record in (HEADER, event(1), event(2)):
        writer.write(record)
        writer.flush()
    writer.close()
    assert records(tmp_path, disk) == [HEADER, event(1), event(2)]
    assert writer.failures == 2  # one call of ``write``, and ``close``
    assert writer.lost == 0


def test_the_lines_of_a_flush_are_one_call_of_the_system(tmp_path: Path) -> None:
    """A flush writes all its lines at once; a disk that takes a part gets the rest in the next."""
    disk = FillsUp(None, 7, None)
    writer = on_disk(tmp_path, disk)
    for _ in range(2):
        for record in (HEADER, event(1), event(2)):
            writer.write(record)
        writer.flush()
    assert disk.calls == 1 + 2
    assert records(tmp_path, disk) == [HEADER, event(1), event(2)] * 2


def test_a_disk_that_stays_full_costs_lines_but_not_all_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many waiting lines are lost and counted; the next line is on a line of its own."""
    monkeypatch.setattr(journal, "_MOST_BYTES", 100)
    disk = FillsUp(None, 20, 0, 0, 0, 0, None)
    writer = on_disk(tmp_path, disk)
    for number in range(5):
        writer.write(HEADER if number == 0 else event(number))
        writer.flush()
    assert writer.lost > 0
    assert len(writer._unwritten) <= 100
    writer.write(event(9))
    writer.flush()
    found = records(tmp_path, disk)
    assert (found[0], found[-1]) == (HEADER, event(9))
    assert len(found) + writer.lost == 6


FORKS = """
import os, sys
from pathlib import Path
from energy_callbacks.accounting.journal.journal import JournalWriter
from energy_callbacks.accounting.journal.raw_readings import RawReadings
folder = Path(sys.argv[1])
raw = RawReadings(folder / "raw.jsonl", 0.0, 0.0)
writer = JournalWriter(folder / "a.jsonl")
writer.write({"type": "header"})
if os.fork():
    os.wait()
    writer.close()
    raw.close()
"""


def test_a_child_that_was_forked_between_write_and_flush_repeats_no_line(tmp_path: Path) -> None:
    """A child that ends as Python programs do writes nothing of what its parent had in memory."""
    subprocess.run([sys.executable, "-c", FORKS, str(tmp_path)], check=True, timeout=60)
    assert (tmp_path / "a.jsonl").read_text() == '{"type":"header"}\n'
    assert len((tmp_path / "raw.readings").read_text().splitlines()) == 1


def test_a_deleted_folder_does_not_raise(tmp_path: Path) -> None:
    """The run folder may be deleted while its journal is written."""
    writer = JournalWriter(tmp_path / "run" / "a.jsonl")
    writer.write(HEADER)
    shutil.rmtree(tmp_path / "run")
    writer.write(event(1))
    writer.flush()
    writer.close()


def test_a_journal_has_ended_with_its_totals(tmp_path: Path) -> None:
    """The last line shows whether a process has ended."""
    path = tmp_path / "a.jsonl"
    writer = journal.JournalWriter(path)
    writer.write({"type": "header"})
    writer.flush()
    assert not journal.has_ended(path)
    writer.write({"type": "totals", "energy": {}})
    writer.close()
    assert journal.has_ended(path)


def test_journals_are_found_in_the_order_of_attempts_hosts_and_ranks(tmp_path: Path) -> None:
    """Numbers are sorted numerically: attempt 10 after 2, and rank 10 after 9."""
    places = [(1, "a", 0), (2, "a", 9), (2, "a", 10), (2, "b-x", 0), (10, "a", 0)]
    for attempt, host, rank in reversed(places):
        written(journal.path_for(tmp_path, attempt, host, rank))
    expected = [journal.path_for(tmp_path, *place) for place in places]
    assert journal.find(tmp_path) == expected


@pytest.mark.parametrize(
    ("host", "name"), [("node1", "node1-3"), ("a/../b", "a_.._b-3"), ("é", "_-3"), ("", "host-3")]
)
def test_a_host_name_cannot_leave_the_folder(tmp_path: Path, host: str, name: str) -> None:
    """For any host name, the journal is in the attempt's folder."""
    path = journal.path_for(tmp_path, 1, host, 3)
    assert path == tmp_path / "attempts" / "1" / f"{name}.jsonl"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file in place of the folder, or of a parent, is a PermissionError with advice."""
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "energy"):
        with pytest.raises(PermissionError, match=r"cannot write .*file.*report_dir="):
            journal.check_writable(folder)
    journal.check_writable(tmp_path / "new" / "folder")
    journal.check_writable(tmp_path)


# --- records


def test_an_energy_comes_back_unchanged(tmp_path: Path) -> None:
    """Energies, also unknown ones, are equal after writing and reading."""
    for energy in (
        Energy(energy_j=None),
        Energy(energy_j=0.0, method="power", coverage=1.0),
        Energy(energy_j=1 / 3, stderr_j=0.1, systematic_j=1e-9, method="counter", coverage=0.5),
        Energy(energy_j=1 / 3, stderr_j=0.1, edge_j=1 / 7, method="counter", coverage=0.5),
    ):
        line = json.dumps(journal.energy_as_json(energy))
        assert journal.energy_from_json(json.loads(line)) == energy


def test_an_energy_without_an_error_from_edges_is_written_as_before() -> None:
    """``edge_j`` is optional: it is written if it is not 0, and read as 0 if it is missing."""
    energy = Energy(energy_j=1.0, stderr_j=0.1, method="counter", coverage=1.0)
    record = journal.energy_as_json(energy)
    assert list(record) == ["energy_j", "stderr_j", "systematic_j", "method", "coverage"]
    assert journal.energy_as_json(replace(energy, edge_j=0.5)) == record | {"edge_j": 0.5}


def test_a_device_is_written_with_its_sensors() -> None:
    """The line contains all fields of a device and of each of its sensors."""
    device = Device(key="gpu0", kind="gpu", scope="gpu", name="GPU", uuid="GPU-1", notes=("a",))
    line = journal.device_record(
        device,
        [channel("power", "gauge", device, period_s=0.02), channel("energy", "counter", device)],
    )
    assert {key: line["device"][key] for key in ("key", "uuid", "notes", "origin")} == {
        "key": "gpu0",
        "uuid": "GPU-1",
        "notes": ["a"],
        "origin": "measured",
    }
    assert set(line["device"]) == set(Device.__slots__)
    assert list(line["sensors"]) == ["power"]
    assert set(line["sensors"]["power"]) == set(Sensor.__slots__)
    assert line["sensors"]["power"]["period_s"] == 0.02
