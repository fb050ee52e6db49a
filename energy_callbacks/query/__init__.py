"""Runs SQL over any number of reports: ``query("select sum(total_wh) from reports", "runs")``.

There is no cache, so results are never out of date: each query reads the first lines of each
report. It reads whole reports only if the SQL uses the tables ``phases``, ``devices`` or
``metrics``.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core.errors import EnergyCallbacksError, JournalError
from energy_callbacks.core.extras import requires
from energy_callbacks.query import tables
from energy_callbacks.query.columns import REPORTS, TABLES, SqlTable
from energy_callbacks.query.locations import Skipped, place_of

__all__ = ["TABLES", "QueryAnswer", "QueryError", "Skipped", "SqlTable", "query"]

_ALLOWED: Final = ("SELECT", "EXPLAIN")
# Types of nodes in DuckDB's syntax tree that use columns without their names.
_UNNAMED: Final = frozenset(
    ("STAR", "NATURAL", "PIVOT", "SHOW_REF", "POSITIONAL", "POSITIONAL_REFERENCE")
)


class QueryError(EnergyCallbacksError, ValueError):
    """The SQL is invalid, or is not a single SELECT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """The result of a query.

    Attributes:
        columns: names of the columns.
        rows: values of each row, as Python objects.
        reports: number of reports that were read.
        skipped: runs without a report, reports that cannot be read or only in part, and folders
            that cannot be listed; the table ``skipped`` has the same rows.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    reports: int
    skipped: tuple[Skipped, ...]


def query(sql: str, place: str | Path) -> QueryAnswer:
    """Run a query over all reports below a folder.

    Args:
        sql: one SELECT over ``TABLES``, in DuckDB's SQL. It cannot read other data and cannot
            write.
        place: a folder, an ``energy_report.json``, or an address of fsspec such as
            ``s3://bucket/runs``.

    Raises:
        QueryError: if the SQL is invalid or not a single SELECT.
        JournalError: if no run is found.
        MissingExtraError: if DuckDB is not installed, or if ``place`` is an address and fsspec is
            not installed.
    """
    with requires("duckdb", extra="query"):
        import duckdb
    location = place_of(str(place))
    connection = tables.connect()
    try:
        names = _tables_of(connection, sql)
        skipped: list[Skipped] = []
        reports = _asked(connection, sql, REPORTS)
        skipped += tables.fill(connection, reports, location, location.find(skipped))
        paths = [path for (path,) in connection.execute("SELECT path FROM reports").fetchall()]
        if not paths and not skipped:
            raise JournalError(f"there is no energy_report.json below {place}; give another folder")
        for table in TABLES:
            if table.part and table.name in names:
                skipped += tables.fill(connection, table, location, paths)
        tables.note(connection, skipped)
        answer = connection.execute(sql)
        columns = tuple(str(column[0]) for column in answer.description or ())
        return QueryAnswer(
            columns=columns, rows=answer.fetchall(), reports=len(paths), skipped=tuple(skipped)
        )
    except duckdb.Error as error:
        raise QueryError(f"{error}; energy-callbacks query --columns lists the tables") from error
    finally:
        connection.close()


def _asked(connection: Any, sql: str, table: SqlTable) -> SqlTable:
    """Return the table with only the columns that the SQL names, because parsing takes most time.

    Columns that are left out are not checked. A name inside a string also counts. All columns are
    kept if the SQL can use columns without their names: by ``*``, as a whole row, by position, or
    in a statement that is not a plain SELECT.
    """
    [tree] = connection.execute("SELECT json_serialize_sql($1)", [sql]).fetchone()
    if _uses_unnamed(json.loads(tree)):
        return table
    return table.only(frozenset(re.findall(r"\w+", sql.lower())))


def _uses_unnamed(tree: Any) -> bool:
    """Return whether the SQL of a DuckDB syntax tree can use columns without their names."""
    nodes = list(_nodes(tree))
    relations = [node for node in nodes if "class" not in node]  # expressions have a key "class"
    rows = {n[key].lower() for n in relations for key in ("table_name", "alias") if n.get(key)}
    return any(
        node.get("error") is True
        or _UNNAMED.intersection(v for v in node.values() if isinstance(v, str))
        or node.get("column_name_alias")
        or rows.intersection(name.lower() for name in (node.get("column_names") or ())[-1:])
        for node in nodes
    )


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a JSON tree."""
    inner: Iterable[Any] = tree if isinstance(tree, list) else ()
    if isinstance(tree, dict):
        yield tree
        inner = tree.values()
    for one in inner:
        yield from _nodes(one)


def _tables_of(connection: Any, sql: str) -> set[str]:
    """Return the names of the tables that the SQL uses; a name inside a string also counts.

    Raises:
        QueryError: if the SQL is not one statement that only reads.
    """
    statements = connection.extract_statements(sql)
    kinds = [statement.type.name.split(".")[-1] for statement in statements]
    if len(kinds) != 1 or kinds[0] not in _ALLOWED:
        raise QueryError(f"a query must be one SELECT statement, got {kinds or 'nothing'}")
    if kinds == ["SELECT"]:
        connection.execute(f"EXPLAIN {sql}").fetchall()  # finds errors before reports are read
    return {table.name for table in TABLES if re.search(rf"\b{table.name}\b", sql, re.IGNORECASE)}
