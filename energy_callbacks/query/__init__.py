"""SQL over any number of reports: ``query("select sum(total_wh) from reports", "runs")``.

Nothing is kept between two queries, so nothing can be out of date: each reads the first lines of
every report, and all of it only if the tables ``phases``, ``devices`` or ``metrics`` are asked.
"""

import json
import re
from collections.abc import Iterator
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
# Kinds of nodes in DuckDB's tree of a statement that use columns without their names.
_UNNAMED: Final = frozenset(("STAR", "NATURAL", "PIVOT", "SHOW_REF", "POSITIONAL"))


class QueryError(EnergyCallbacksError, ValueError):
    """SQL that cannot be answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """The answer of a query.

    Attributes:
        columns: their names.
        rows: their values, of the types of Python that DuckDB gives.
        reports: how many were read.
        skipped: runs of which no report could be; they are in the table ``skipped``.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    reports: int
    skipped: tuple[Skipped, ...]


def query(sql: str, place: str | Path) -> QueryAnswer:
    """Ask all reports below a place.

    Args:
        sql: one SELECT, in DuckDB's SQL, over ``TABLES``. It can read nothing else, and write
            nothing.
        place: a folder, an ``energy_report.json``, or an address of fsspec such as
            ``s3://bucket/runs``.

    Raises:
        QueryError: if the SQL cannot be answered.
        JournalError: if there is no run at all.
        MissingExtraError: without DuckDB, or without fsspec for an address.
    """
    with requires("duckdb", extra="query"):
        import duckdb
    where = place_of(str(place))
    connection = tables.connect()
    try:
        asked = _tables_of(connection, sql)
        skipped: list[Skipped] = []
        reports = _asked(connection, sql, REPORTS)
        skipped += tables.fill(connection, reports, where, where.find(skipped))
        paths = [path for (path,) in connection.execute("SELECT path FROM reports").fetchall()]
        if not paths and not skipped:
            raise JournalError(f"there is no energy_report.json below {place}; give another folder")
        for table in TABLES:
            if table.part and table.name in asked:
                skipped += tables.fill(connection, table, where, paths)
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
    """A table with the columns that are asked for: taking a report apart is most of the work.

    Those whose names stand in the SQL, be it in a string; what is not asked for is not checked. All
    of them if columns may be meant that are not named: by a star, as a whole row, in order, or
    by what is no plain SELECT.
    """
    [tree] = connection.execute("SELECT json_serialize_sql($1)", [sql]).fetchone()
    if _means_unnamed(json.loads(tree)):
        return table
    return table.only(frozenset(re.findall(r"\w+", sql.lower())))


def _means_unnamed(tree: Any) -> bool:
    """Whether a statement, as DuckDB takes it apart, uses columns without their names."""
    nodes = list(_nodes(tree))
    relations = [node for node in nodes if "class" not in node]  # the others are expressions
    rows = {n[key].lower() for n in relations for key in ("table_name", "alias") if n.get(key)}
    return any(
        node.get("error") is True
        or _UNNAMED.intersection(v for v in node.values() if isinstance(v, str))
        or node.get("column_name_alias")
        or rows.intersection(name.lower() for name in (node.get("column_names") or ())[-1:])
        for node in nodes
    )


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for one in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(one)


def _tables_of(connection: Any, sql: str) -> set[str]:
    """Which tables may be asked: those that are named, be it in a string.

    Raises:
        QueryError: if it is not one statement that only reads.
    """
    statements = connection.extract_statements(sql)
    kinds = [statement.type.name.split(".")[-1] for statement in statements]
    if len(kinds) != 1 or kinds[0] not in _ALLOWED:
        raise QueryError(f"a query is one SELECT, got {kinds or 'nothing'}; write one that reads")
    if kinds == ["SELECT"]:
        connection.execute(f"EXPLAIN {sql}").fetchall()  # what is wrong is said before reading
    return {table.name for table in TABLES if re.search(rf"\b{table.name}\b", sql, re.IGNORECASE)}
