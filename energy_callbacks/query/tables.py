"""Loads reports into DuckDB tables, through a connection without access to files.

The content of a report is passed to DuckDB as values, never as part of an SQL text. The JSON type
of each field is checked. A report that fails the check is read again by ``schema.from_json``, which
supports the formats of older versions, and describes the error if the report is damaged.
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
from energy_callbacks.query.columns import KINDS, TABLES, Kind, SqlTable
from energy_callbacks.query.locations import Content, ReportLocation, Skipped, Why
from energy_callbacks.report.model import schema

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Settings that prevent DuckDB from installing and loading extensions, and from writing temporary
# files for large sorts. In addition, ``connect`` turns ``enable_external_access`` off, so that a
# query cannot read or write files, and cannot read Python variables of this process.
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "temp_directory": "",
}
# Number of reports in a chunk: first, for reports of which only the beginning is read; second, for
# whole reports. While DuckDB inserts one chunk, the next chunks are read.
_HEADS, _WHOLES = 5_000, 100
# The text in a report that follows the fields of the table ``reports``.
_HEAD_END: Final = b',\n"phases": '


def connect() -> "DuckDBPyConnection":
    """Return a connection to a new in-memory database with empty tables.

    The connection has no access to files, and its settings cannot be changed.
    """
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
    """Read reports and insert their rows into a table.

    Args:
        connection: connection from ``connect``.
        table: the table to fill.
        place: location of the reports.
        paths: paths of the reports in ``place``.

    Returns:
        The reports that were not inserted, because they cannot be read or are invalid.
    """
    size = _HEADS if table.part is None else _WHOLES

    def insert(texts: dict[str, str | None]) -> list[Skipped]:
        with connection.cursor() as cursor:
            doubtful = [path for path, text in texts.items() if text is None]
            doubtful += _insert(cursor, table, {p: t for p, t in texts.items() if t is not None})
            return list(_insert_again(cursor, table, place, doubtful))

    # This thread reads the reports and one worker thread inserts them. More worker threads would
    # only wait for Python's global interpreter lock.
    with ThreadPoolExecutor(1) as worker:
        ahead: deque[Future[list[Skipped]]] = deque()
        skipped: list[Skipped] = []
        rest = iter(paths)
        while chunk := list(islice(rest, size)):
            contents = place.heads(chunk) if table.part is None else place.wholes(chunk)
            texts = [_needed(content, table.part) for content in contents]
            ahead.append(worker.submit(insert, dict(zip(chunk, texts, strict=True))))
            if len(ahead) > 2:  # limits the memory that waiting chunks use
                skipped += ahead.popleft().result()
        return skipped + [one for future in ahead for one in future.result()]


def note(connection: "DuckDBPyConnection", skipped: Sequence[Skipped]) -> None:
    """Insert one row for each element of ``skipped`` into the table ``skipped``."""
    columns = {name: [getattr(one, name) for one in skipped] for name in ("path", "why", "message")}
    _append(connection, "INSERT INTO skipped SELECT path, why, message FROM given", columns)


def _needed(content: Content, part: str | None) -> str | None:
    """Return the part of a report that a table needs, as JSON.

    Args:
        content: the bytes of a report or of its beginning, or the error from reading it.
        part: name of a list in the report; ``None`` for all fields before ``phases``.

    Returns:
        JSON of the list, or of an object with the fields before ``phases``. ``None`` if the report
        cannot be read or is not formatted as by ``schema.to_json``.
    """
    if isinstance(content, OSError):
        return None
    if part is None:
        end = content.find(_HEAD_END)
        return None if end < 0 else content[:end].decode(errors="replace") + "}"
    _, key, rest = content.partition(f'\n"{part}": '.encode())
    if not key or not rest.rstrip().endswith(b"}"):
        return None
    return rest.partition(b"\n")[0].rstrip(b",").decode(errors="replace")


def _insert_again(
    connection: "DuckDBPyConnection", table: SqlTable, place: ReportLocation, paths: Sequence[str]
) -> Iterator[Skipped]:
    """Read reports with ``schema.from_json`` and insert them; yield those that are not inserted.

    Args:
        connection: connection from ``connect``.
        table: the table to fill.
        place: location of the reports.
        paths: the reports that ``_needed`` or ``_insert`` rejected.
    """
    why: Why = "not read" if table.part is None else "partly read"
    for path, content in zip(paths, place.wholes(paths), strict=True):
        try:
            if isinstance(content, OSError):
                raise content
            report = schema.from_json(content.decode(errors="replace"))
            text = _needed(schema.to_json(report).encode(), table.part)
        except (JournalError, OSError, ValueError, RecursionError) as error:
            yield Skipped(path, why, str(error))
            continue
        if text is not None and _insert(connection, table, {path: text}):
            yield Skipped(path, why, f"it contains an impossible number ({table.name})")


def _insert(connection: "DuckDBPyConnection", table: SqlTable, texts: dict[str, str]) -> list[str]:
    """Insert the rows of the valid reports; return the paths of the other reports.

    Args:
        connection: connection from ``connect``.
        table: the table to fill.
        texts: JSON from ``_needed``, by path of the report.
    """
    connection.execute("DROP TABLE IF EXISTS checked")
    given = {"path": list(texts), "text": list(texts.values())}
    _append(connection, f"CREATE TEMP TABLE checked AS {_parsed(table)}", given)
    # A shape is the list of the JSON types of all fields of a row. Many rows have the same shape,
    # so each shape is checked only once.
    shapes = connection.execute("SELECT DISTINCT shape FROM checked WHERE is_row").fetchall()
    good = [shape for (shape,) in shapes if shape is not None and _is_valid(shape, table)]
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


def _parsed(table: SqlTable) -> str:
    """Return SQL that converts the table ``given``, with JSON texts, to rows that can be checked.

    A row contains the fields as ``f1``, ``f2``, ..., its shape, and the results of the checks. If
    the rows are elements of a list, a report in which this list is empty or damaged gets one row
    with ``is_row`` false, so that the result contains every report.
    """
    items = (
        "SELECT path, text AS item, json_valid(text) AS is_valid, json_valid(text) AS is_row "
        "FROM given"
        if table.part is None
        else "SELECT path, unnest(CASE WHEN len(items) > 0 THEN items ELSE ['{}'] END) AS item, "
        "items IS NOT NULL AS is_valid, coalesce(len(items) > 0, false) AS is_row "
        "FROM (SELECT path, CASE WHEN json_valid(text) AND json_type(text) = 'ARRAY' "
        "THEN CAST(json_extract(text, '$[*]') AS VARCHAR[]) ELSE NULL END AS items FROM given)"
    )
    paths = ", ".join(f"'$.{path}'" for path in table.fields)
    fields = enumerate(table.fields.items(), start=1)
    values = ", ".join(f"{_value(path, kind)} AS f{i}" for i, (path, kind) in fields)
    return (
        f"SELECT * EXCLUDE (t), CAST(t AS VARCHAR) AS shape, {_checks(table)} AS can_be "  # noqa: S608
        f"FROM (SELECT path, is_valid, is_row, t, {values} FROM "
        "(SELECT path, item, is_valid, is_row, "
        f"CASE WHEN is_row THEN json_transform(item, '{json.dumps(_structure(table))}') END AS s, "
        f"CASE WHEN is_row THEN json_type(item, [{paths}]) END AS t FROM ({items})))"
    )


def _checks(table: SqlTable) -> str:
    """Return an SQL condition that is true if all values of a row are valid.

    Numbers must be finite. A whole number or a list is invalid if it is null in SQL but not in the
    JSON: the value could not be converted. The schema version must not be newer than that of this
    program.
    """
    fields = list(enumerate(table.fields.items(), start=1))
    numbers = [f"coalesce(f{i}, 0)" for i, (_, kind) in fields if kind == "number"]
    checks = [f"isfinite({' + '.join(['0.0', *numbers])})"]
    checks += [
        f"(f{i} IS NULL) = (coalesce(t[{i}], 'NULL') = 'NULL')"
        for i, (_, kind) in fields
        if kind in ("whole", "list")
    ]
    checks += [
        f"coalesce(f{i}, 0) <= {schema.SCHEMA_VERSION}"
        for i, (path, _) in fields
        if path == "schema_version"
    ]
    return " AND ".join(checks)


def _structure(table: SqlTable) -> dict[str, Any]:
    """Return the SQL types of the fields, nested as DuckDB's ``json_transform`` needs them.

    ``json_transform`` returns null for values that it cannot convert to these types.
    """
    structure: dict[str, Any] = {}
    for path, kind in table.fields.items():
        *parents, name = path.split(".")
        inner = structure
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = "JSON" if kind == "list" else KINDS[kind].sql
    return structure


def _value(path: str, kind: Kind) -> str:
    """Return SQL for the value of a field; a list is null if an element cannot be converted."""
    if kind == "list":
        return f"TRY_CAST(json_extract_string(item, '$.{path}') AS {KINDS[kind].sql})"
    return "s" + "".join(f"['{name}']" for name in path.split("."))


def _is_valid(shape: str, table: SqlTable) -> bool:
    """Return whether each type in a shape, such as ``[VARCHAR, NULL]``, is allowed for its field.

    The type ``NULL`` is allowed for fields that are not required.
    """
    types = zip(table.fields.items(), re.findall(r"\w+", shape), strict=True)
    return all(
        json_type in KINDS[kind].json or (json_type == "NULL" and path not in table.required)
        for (path, kind), json_type in types
    )


def _append(connection: "DuckDBPyConnection", sql: str, given: dict[str, list[Any]]) -> None:
    """Run SQL that reads a table named ``given``, which exists only during this call.

    Args:
        connection: connection from ``connect``.
        sql: the SQL, which must not end with a ``WHERE`` clause.
        given: text columns of the table, by name.
    """
    if not next(iter(given.values())):
        given = {name: [""] for name in given}
        sql += " WHERE false"
    connection.register("given", {k: np.array(v, dtype=object) for k, v in given.items()})
    connection.execute(sql).fetchall()
    connection.unregister("given")
