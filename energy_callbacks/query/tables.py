"""Loads reports into DuckDB tables, on a connection that can only read.

What a report says is data and never SQL: its text is handed over as values. Each field's kind is
checked; a report that fails is read again by ``schema.from_json``, which knows older writers and
says what is wrong.
"""

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from energy_callbacks.core.errors import JournalError
from energy_callbacks.query.columns import JSON_TYPES, SQL_TYPES, TABLES, JsonField, SqlTable
from energy_callbacks.query.locations import Content, ReportLocation, Skipped
from energy_callbacks.report.model import schema

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# With enable_external_access off nothing is written, read, or looked up among the variables of this
# program. Nothing is installed, and a sort that does not fit into memory goes to no file.
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "temp_directory": "",
}
# Reports at a time. Those of one time are read while those before are taken apart.
_HEADS, _WHOLES = 5_000, 100
_HEAD_END: Final = b',\n"phases": '


def connect() -> "DuckDBPyConnection":
    """A database in memory with all tables, still empty; without files, and locked."""
    import duckdb

    connection = duckdb.connect(":memory:", config=_CONFIG)
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    for table in TABLES:
        columns = ", ".join(f"{column.name} {column.type}" for column in table.columns)
        connection.execute(f"CREATE TABLE {table.name} (path VARCHAR, {columns})")
    return connection


def fill(
    connection: "DuckDBPyConnection", table: SqlTable, place: ReportLocation, paths: Iterable[str]
) -> list[Skipped]:
    """Read reports and put their rows into a table, as their paths come.

    Returns:
        Those that cannot be read.
    """
    size = _HEADS if table.part is None else _WHOLES

    def take(texts: dict[str, str | None]) -> list[Skipped]:
        with connection.cursor() as cursor:
            return list(_fill(cursor, table, place, texts))

    # One thread reads, the other has DuckDB take apart what was read: more of either would only
    # wait for Python's interpreter.
    with ThreadPoolExecutor(1) as worker:
        ahead: deque[Future[list[Skipped]]] = deque()
        skipped: list[Skipped] = []
        for chunk in _chunks(paths, size):
            ahead.append(worker.submit(take, dict(_texts(table, place, chunk))))
            if len(ahead) > 2:  # so that no list of texts waits in memory
                skipped += ahead.popleft().result()
        return skipped + [one for future in ahead for one in future.result()]


def _chunks(paths: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(paths)
    while chunk := list(islice(rest, size)):
        yield chunk


def _fill(
    cursor: "DuckDBPyConnection",
    table: SqlTable,
    place: ReportLocation,
    texts: dict[str, str | None],
) -> Iterator[Skipped]:
    doubtful = [path for path, text in texts.items() if text is None]
    doubtful += _insert(cursor, table, {p: t for p, t in texts.items() if t is not None})
    yield from _again(cursor, table, place, doubtful)


def note(connection: "DuckDBPyConnection", skipped: Sequence[Skipped]) -> None:
    """Fill the table of what is in no other."""
    columns = {name: [getattr(one, name) for one in skipped] for name in ("path", "why", "message")}
    _append(connection, "INSERT INTO skipped SELECT path, why, message FROM given", columns)


def _texts(
    table: SqlTable, place: ReportLocation, paths: Sequence[str]
) -> Iterator[tuple[str, str | None]]:
    """The JSON that a table needs of each report; ``None`` if it is not where we write it."""
    if table.part is None:
        for path, (head, has_end) in zip(paths, place.heads(paths), strict=True):
            yield path, _head(head) if has_end else None
    else:
        for path, whole in zip(paths, place.wholes(paths), strict=True):
            yield path, _part(whole, table.part)


def _head(content: Content) -> str | None:
    """A report up to its phases, closed; each of its parts is a line."""
    if isinstance(content, OSError):
        return None
    end = content.find(_HEAD_END)
    return None if end < 0 else content[:end].decode(errors="replace") + "}"


def _part(content: Content, name: str) -> str | None:
    """The line of one part."""
    if isinstance(content, OSError) or not content.rstrip().endswith(b"}"):
        return None
    key = f'\n"{name}": '.encode()
    start = content.find(key)
    if start < 0:
        return None
    line = content[start + len(key) :].partition(b"\n")[0]
    return line.rstrip(b",").decode(errors="replace")


def _again(
    connection: "DuckDBPyConnection", table: SqlTable, place: ReportLocation, paths: Sequence[str]
) -> Iterator[Skipped]:
    """Read whole what is not as we write it; yields what cannot be read."""
    for path, content in zip(paths, place.wholes(paths), strict=True):
        try:
            text = schema.to_json(schema.from_json(_decoded(content))).encode()
        except (JournalError, OSError, ValueError, RecursionError) as error:
            yield Skipped(path, "not read", str(error))
            continue
        found = _head(text) if table.part is None else _part(text, table.part)
        if found is not None and _insert(connection, table, {path: found}):
            yield Skipped(path, "not read", f"a number in it cannot be ({table.name})")


def _decoded(content: Content) -> str:
    if isinstance(content, OSError):
        raise content
    return content.decode(errors="replace")


def _insert(connection: "DuckDBPyConnection", table: SqlTable, texts: dict[str, str]) -> list[str]:
    """Put in what is as it should be; returns the paths of the rest."""
    connection.execute("DROP TABLE IF EXISTS checked")
    given = {"path": list(texts), "text": list(texts.values())}
    _append(connection, f"CREATE TEMP TABLE checked AS {_taken_apart(table)}", given)
    # A few shapes are those of all reports.
    shapes = connection.execute("SELECT DISTINCT shape FROM checked WHERE is_row").fetchall()
    good = [shape for (shape,) in shapes if shape is not None and _is_good(shape, table)]
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE bad AS SELECT DISTINCT path FROM checked "
        "WHERE NOT is_valid OR is_row AND NOT (list_contains($1, shape) AND can_be)",
        [good],
    ).fetchall()
    connection.execute(
        f"INSERT INTO {table.name} ({', '.join(table.names)}) "  # noqa: S608
        f"SELECT path, {table.selection()} FROM checked "
        "ANTI JOIN bad USING (path) WHERE is_row"
    ).fetchall()
    return [path for (path,) in connection.execute("FROM bad").fetchall()]


def _taken_apart(table: SqlTable) -> str:
    """SQL that makes rows of ``given``: each field's value, and the JSON types of all as a shape.

    A list without elements, or that is none, is one row that does not count, so that every report
    is judged.
    """
    fields = list(enumerate(table.fields, start=1))
    paths = ", ".join(f"'$.{field.path}'" for _, field in fields)
    items = (
        "SELECT path, text AS item, json_valid(text) AS is_valid, json_valid(text) AS is_row "
        "FROM given"
        if table.part is None
        else "SELECT path, unnest(CASE WHEN len(items) > 0 THEN items ELSE ['{}'] END) AS item, "
        "items IS NOT NULL AS is_valid, coalesce(len(items) > 0, false) AS is_row "
        "FROM (SELECT path, CASE WHEN json_valid(text) AND json_type(text) = 'ARRAY' "
        "THEN json_extract_string(text, '$[*]') ELSE NULL END AS items FROM given)"
    )
    structure = json.dumps(_structure(table))
    values = ", ".join(f"{_value(field)} AS f{i}" for i, field in fields)
    numbers = [f"coalesce(f{i}, 0)" for i, field in fields if field.kind == "number"]
    checks = [
        f"isfinite({' + '.join(['0.0', *numbers])})",
        *(
            f"(f{i} IS NULL) = (coalesce(t[{i}], 'NULL') = 'NULL')"
            for i, field in fields
            if field.kind in ("whole", "list")
        ),
        *(
            f"coalesce(f{i}, 0) <= {schema.SCHEMA_VERSION}"
            for i, field in fields
            if field.path == "schema_version"
        ),
    ]
    return (
        f"SELECT * EXCLUDE (t), CAST(t AS VARCHAR) AS shape, {' AND '.join(checks)} AS can_be "  # noqa: S608
        f"FROM (SELECT path, is_valid, is_row, t, {values} FROM "
        "(SELECT path, item, is_valid, is_row, "
        f"CASE WHEN is_row THEN json_transform(item, '{structure}') END AS s, "
        f"CASE WHEN is_row THEN json_type(item, [{paths}]) END AS t FROM ({items})))"
    )


def _structure(table: SqlTable) -> dict[str, Any]:
    """The fields as ``json_transform`` wants them: what is not of its kind becomes null."""
    found: dict[str, Any] = {}
    for field in table.fields:
        *parents, name = field.path.split(".")
        inner = found
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = "JSON" if field.kind == "list" else SQL_TYPES[field.kind]
    return found


def _value(field: JsonField) -> str:
    """A field of the struct ``s``; a list all at once, so that one wrong element is noticed."""
    if field.kind == "list":
        return f"TRY_CAST(json_extract_string(item, '$.{field.path}') AS {SQL_TYPES['list']})"
    return "s" + "".join(f"['{name}']" for name in field.path.split("."))


def _is_good(shape: str, table: SqlTable) -> bool:
    """Whether each field has its kind, and is there if it must be: ``[VARCHAR, NULL, ...]``."""
    pairs = zip(table.fields, re.findall(r"\w+", shape), strict=True)
    return all(
        found in JSON_TYPES[field.kind] or (found == "NULL" and field.path not in table.required)
        for field, found in pairs
    )


def _append(connection: "DuckDBPyConnection", sql: str, given: dict[str, list[Any]]) -> None:
    """Run SQL over ``given``, columns of texts."""
    if not next(iter(given.values())):
        given = {name: [""] for name in given}
        sql += " WHERE false"
    connection.register("given", {k: np.array(v, dtype=object) for k, v in given.items()})
    connection.execute(sql).fetchall()
    connection.unregister("given")
