"""A damaged journal costs its rank, a damaged line costs that line, and warnings name both."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from energy_callbacks.accounting.journal import journal
from energy_callbacks.core.errors import JournalError
from energy_callbacks.report import EnergyReport, build
from energy_callbacks.report.collect.process import load
from energy_callbacks.report.model import schema
from tests.report import journals
from tests.report.journals import Attempt, Stretch

SHORT = (Stretch(phase="train", duration_s=4.0, power_w={"gpu0": 500.0, "cpu0": 100.0}),)
GOOD = Attempt(stretches=SHORT, metrics=((2.0, {"loss": 1.0}, 20, 0.5),))
OTHER = Attempt(rank=1, host="node2", stretches=SHORT, metrics=GOOD.metrics, wait_energy={})
DEEP = 100_000
"""Depth of nested lists, more than Python's parser of JSON follows."""
# Texts of JSON values that are wrong in nearly every place.
WRONG = (
    "null", "true", "-1", "1.5", '"x"', '""', "[]", "{}", '["x"]', '{"x": 1}', "NaN", "-Infinity",
    "1e999", "9" * 400, "9" * 5000, "[" * DEEP, "[" * 900 + "]" * 900, '"\\ud800"', '"\\u0000"',
)  # fmt: skip

Lines = list[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a run folder with a good journal of rank 0."""
    journals.write(tmp_path, GOOD)
    return tmp_path


def damaged(folder: Path, change: Callable[[Lines], Lines]) -> Path:
    """Write the journal of rank 1, and change its lines."""
    path = journals.write(folder, OTHER)
    lines = change(path.read_text().splitlines())
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def messages(report: EnergyReport) -> str:
    """Return the messages of all warnings."""
    return "\n".join(warning.message for warning in report.warnings)


def with_header(changes: Mapping[str, str], lines: Lines) -> Lines:
    """Replace values of the header by texts of JSON, by their paths."""
    marks: dict[str, str] = {}
    header = json.loads(lines[0])
    for number, (path, text) in enumerate(changes.items()):
        *parents, name = path.split(".")
        place = header
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = f"mark {number}"
        marks[f'"mark {number}"'] = text
    line = json.dumps(header)
    for mark, text in marks.items():
        line = line.replace(mark, text)
    return [line, *lines[1:]]


HEADERS: list[Callable[[Lines], Lines]] = [
    partial(with_header, {path: text})
    for path, text in [
        ("version", '"two"'), ("version", "[]"), ("version", "null"), ("run_id", "5"),
        ("attempt", '"1"'), ("attempt", "-1"), ("attempt", "9" * 400), ("attempt", "null"),
        ("host", "[]"), ("host", "null"), ("rank", '"1"'), ("rank", "1.5"), ("rank", "true"),
        ("unix_s", "NaN"), ("unix_s", "1e999"), ("unix_s", "1e300"), ("unix_s", '"now"'),
        ("world_size", "[]"), ("columns", '"energy_j"'), ("columns", "[[]]"), ("tags", "[]"),
        ("config", "[]"), ("config.place", "5"), ("config.pue", '"1"'), ("config.pue", "1e999"),
        ("config", "[" * DEEP), ("environment", '"x"'), ("environment.command", "[]"),
        ("before", "5"), ("before", '{"energy_j": "x"}'), ("before", '{"folder": 5}'),
        ("launch", "{}"), ("run_name", "[]"), ("framework", "{}"), ("imported", "5"),
    ]
]  # fmt: skip
FILES: list[Callable[[Lines], Lines]] = [
    lambda _: [],
    lambda _: ["x"],
    lambda _: ["[" * DEEP],
    lambda lines: lines[1:],
    lambda lines: ["[1]", *lines[1:]],
]


@pytest.mark.parametrize("change", [*HEADERS, *FILES])
def test_a_damaged_header_costs_the_rank(folder: Path, change: Callable[[Lines], Lines]) -> None:
    """The report is that of the other rank, and names the file; alone, the file is an error."""
    alone = build(folder, now_unix_s=2e9)
    path = damaged(folder, change)

    report = build(folder, now_unix_s=2e9)

    assert str(path) in messages(report)
    assert report.energy == alone.energy
    with pytest.raises(JournalError, match=re.escape(path.name)):
        build(path, now_unix_s=2e9)


def test_a_header_of_wrong_type_says_what_is_wrong(folder: Path) -> None:
    """The message has file, line, field, value and what to do."""
    path = damaged(folder, partial(with_header, {"rank": '"one"'}))
    with pytest.raises(JournalError) as caught:
        load(path)
    assert str(caught.value) == (
        f"{path}, line 1: rank of the header must be a whole number, got 'one'; the file is "
        "damaged, or another program wrote it"
    )


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize("kind", ["junk", "series", "span", "steps", "device", "totals", "metrics"])
def test_a_damaged_line_costs_the_line(folder: Path, kind: str, text: str) -> None:
    """The other lines are read; the report names the file and the line."""

    def change(lines: Lines) -> Lines:
        number = next((n for n, line in enumerate(lines) if f'"{kind}"' in line), 5)
        line = lines[number]
        for name in ("t_s", "start_s", "end_s"):
            line = re.sub(rf'"{name}":[-\d.e]+', lambda _: f'"{name}":{text}', line, count=1)  # noqa: B023
        lines[number] = f'{{"type":{text}}}' if kind == "junk" else line
        if kind == "device":
            lines[number] = lines[number].replace('"uuid":"GPU-aaaa"', f'"uuid":{text}')
        return lines

    path = damaged(folder, change)
    report = build(folder, now_unix_s=2e9)

    assert len(report.attempts) == 2
    assert schema.from_json(schema.to_json(report)) == report
    if "damaged line" in messages(report):
        said = rf"1 damaged line of {path.name} is not included \(the first is line \d+\)"
        assert re.search(said, messages(report))


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("metrics", '"t_s":2.0,', ""),
        ("totals", '"missed_readings":{}', '"missed_readings":5'),
    ],
)
def test_a_wrong_value_costs_only_the_line(folder: Path, kind: str, old: str, new: str) -> None:
    """A report can be made from the other lines."""

    def change(lines: Lines) -> Lines:
        (number,) = (n for n, line in enumerate(lines) if f'"{kind}"' in line)
        assert old in lines[number]
        return [*lines[:number], lines[number].replace(old, new), *lines[number + 1 :]]

    report = build(damaged(folder, change), now_unix_s=2e9)
    assert "1 damaged line of " in messages(report)


def test_each_damaged_line_is_counted(folder: Path) -> None:
    """The number of the first one is stated; a last line without line end is no damage."""
    path = damaged(folder, lambda lines: [*lines[:3], "x", "", '{"type": "series"}', *lines[3:]])
    with path.open("a") as file:
        file.write('{"type":"warn')
    text = messages(build(folder, now_unix_s=2e9))
    assert f"2 damaged lines of {path.name} are not included (the first is line 4)" in text


@pytest.mark.slow
def test_a_huge_line_is_left_out(folder: Path) -> None:
    """A line of 100 MB takes the memory of a sixth of it, and the lines after it are read."""
    alone = build(folder, now_unix_s=2e9)
    path = damaged(folder, lambda lines: [*lines[:3], "y" * 100_000_000, *lines[3:]])
    report = build(folder, now_unix_s=2e9)
    said = f"1 damaged line of {path.name} is not included (the first is line 4)"
    assert said in messages(report)
    assert report.energy.gpu.energy_j == pytest.approx(2.0 * (alone.energy.gpu.energy_j or 0.0))


def test_lines_over_the_limit_are_cut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long line is damaged, and lines of just the limit are not."""
    monkeypatch.setattr("energy_callbacks.core.json_lines._LONGEST_LINE", 4000)
    path = damaged(
        folder,
        lambda lines: [
            *lines[:3],
            '{"type":"x"}'.ljust(3999),
            '{"type":"x"}'.ljust(3998),
            f'{{"type":"{"y" * 8000}"}}',
            f'{{"type":"{"y" * 7990}"}}'.ljust(7999),
            *lines[3:],
        ],
    )
    text = messages(build(folder, now_unix_s=2e9))
    assert f"2 damaged lines of {path.name} are not included (the first is line 6)" in text


def garbage(path: Path) -> None:
    """Write binary garbage that begins as a gzip file."""
    path.write_bytes(b"\x1f\x8b" + bytes(range(256)) * 100)


def make_fifo(path: Path) -> None:
    """Replace the file by a named pipe, whose reader would wait for ever."""
    path.unlink()
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    """Replace the file by a folder."""
    path.unlink()
    path.mkdir()


def make_dangling(path: Path) -> None:
    """Replace the file by a link to nothing."""
    path.unlink()
    path.symlink_to("nowhere")


@pytest.mark.parametrize(
    "spoil",
    [
        garbage,
        make_fifo,
        make_folder,
        make_dangling,
        lambda path: path.write_bytes(b"\0" * 10_000),
        lambda path: path.write_bytes(b"\xff\xfe" + b"\xd8" * 1001),
        lambda path: path.write_text("y" * 20_000_000),
    ],
)
def test_a_file_that_is_no_journal_costs_the_rank(
    folder: Path, spoil: Callable[[Path], object]
) -> None:
    """The report names it; alone, it is an error that names it."""
    path = journals.write(folder, OTHER)
    spoil(path)
    report = build(folder, now_unix_s=2e9)
    assert str(path) in messages(report)
    assert len(report.attempts) == 1
    (folder / "attempts/1/node1-0.jsonl").unlink()
    with pytest.raises(JournalError, match=re.escape(str(path))):
        build(folder, now_unix_s=2e9)


def test_values_that_only_the_report_checks_cost_the_rank(folder: Path) -> None:
    """A profile is checked when the report is built: a damaged one is named, with its reason."""
    profile = '{"type":"event","kind":"profile","t_s":1.0,"of":"kernels","record":{"steps":"x"}}'
    path = damaged(folder, lambda lines: [*lines[:-1], profile, lines[-1]])
    report = build(folder, now_unix_s=2e9)
    assert f"{path} is damaged (ValidationError" in messages(report)
    assert len(report.attempts) == 1
    with pytest.raises(JournalError, match=re.escape(f"{path} is damaged")):
        build(path)


def test_a_damaged_newest_journal_gives_no_run_id(folder: Path) -> None:
    """A training that starts in the folder is not stopped by it."""
    damaged(folder, partial(with_header, {"run_id": "[]"}))
    assert journal.newest_run_id(folder) is None


@pytest.mark.parametrize("paths", [[], ()])
def test_no_path_is_an_error(paths: Any) -> None:
    """The message says what to give."""
    with pytest.raises(ValueError, match=r"no journal to read, got .*give a run folder"):
        build(paths)


# --- any damage


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def changed(line: str, path: tuple[Any, ...], text: str) -> str:
    """Replace one value of a line by a text of JSON."""
    if not path:
        return text
    record = json.loads(line)
    place = record
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = "THE MARK"
    return json.dumps(record).replace('"THE MARK"', text)


def parsed(line: str) -> Any:
    """Return the JSON value of a line; ``None`` if it is damaged."""
    try:
        return json.loads(line)
    except (RecursionError, ValueError):
        return None


@st.composite
def damages(draw: st.DrawFn) -> Callable[[Lines], Lines]:
    """Return a function that replaces values of the first line of some kinds."""
    texts = st.one_of(st.sampled_from(WRONG), st.text(max_size=5), st.floats().map(json.dumps))
    places_ = st.tuples(st.integers(0, 10_000), st.integers(0, 10_000), texts)
    rolls = draw(st.lists(places_, min_size=1, max_size=4))
    is_header = draw(st.booleans())

    def change(lines: Lines) -> Lines:
        for kind, value, text in rolls:
            firsts: dict[str, int] = {}
            for number, line in enumerate(lines):
                record = parsed(line)
                if isinstance(record, dict):
                    firsts.setdefault(str(record.get("kind", record.get("type"))), number)
            if firsts:
                number = 0 if is_header else list(firsts.values())[kind % len(firsts)]
                if (record := parsed(lines[number])) is not None:
                    found = list(places(record))
                    line = changed(lines[number], found[value % len(found)], text)
                    lines[number] = " ".join(line.splitlines())
        return lines

    return change


@pytest.mark.parametrize("cut_off", [False, True])
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(change=damages())
def test_any_damage_costs_at_most_the_rank(
    cut_off: bool, change: Callable[[Lines], Lines], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With a good rank beside it, a damaged one never raises; alone, it may only be refused."""
    folder = tmp_path_factory.mktemp("run")
    journals.write(folder, GOOD)
    path = damaged(
        folder, lambda lines: change([one for one in lines if not cut_off or "totals" not in one])
    )

    report = build(folder, now_unix_s=2e9)

    text = schema.to_json(report)
    assert schema.from_json(text) == report
    if len(report.attempts) == 1:
        assert path.name in messages(report) or "older run" in messages(report)
    with suppress(JournalError):
        schema.to_json(build(path, now_unix_s=2e9))
