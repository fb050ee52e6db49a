"""``energy-callbacks query``: runs an SQL query over any number of reports."""

import argparse
import csv
import datetime as dt
import itertools
import json
import logging
import math
import sys
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from energy_callbacks.cli.common import options
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.cli.common.tables import print_table
from energy_callbacks.core import formatting
from energy_callbacks.query import TABLES, QueryAnswer, query
from energy_callbacks.query.columns import SKIPPED

HELP = "run an SQL query over any number of reports"

# Maximum length of a cell of the printed table, in characters.
_LONGEST_CELL: Final = 60
# Maximum number of skipped runs that are listed.
_NAMED: Final = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "sql",
        nargs="?",
        metavar="SQL",
        help='one SELECT statement, such as "select name, total_wh from reports order by total_wh"',
    )
    parser.add_argument(
        "place",
        nargs="?",
        metavar="FOLDER",
        help="folder that is searched for reports, with all folders below it; or an address such "
        "as s3://bucket/runs",
    )
    parser.add_argument("--columns", action="store_true", help="list the tables and their columns")
    options.add_json(parser, csv="print comma-separated values")


def run(arguments: argparse.Namespace) -> int:
    """Print the result of the query, and report skipped runs on standard error; return 0.

    With ``--columns``, print the tables and their columns instead. With ``-v``, all skipped runs
    are listed.
    """
    if arguments.columns:
        _print_columns(as_json=arguments.json)
        return 0
    if arguments.sql is None or arguments.place is None:
        raise ValueError(
            'SQL or folder is missing; write: query "select count(*) from reports" FOLDER; '
            "--columns lists the tables"
        )
    answer = query(arguments.sql, arguments.place)
    if arguments.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows(map(_plain, row) for row in answer.rows)
    elif arguments.json:
        _print_json(answer)
    else:
        print_table(answer.columns, [[_cell(value) for value in row] for row in answer.rows])
    _report_skipped(answer)
    return 0


def _print_columns(*, as_json: bool) -> None:
    if as_json:
        meanings = {
            one.name: {column.name: column.meaning for column in one.columns} for one in TABLES
        }
        print(json.dumps(meanings, indent=2))
        return
    for table in TABLES:
        print(f"{table.name}: {table.meaning}")
        what = (
            "path of the report or folder"
            if table is SKIPPED
            else "path of the report; the same in all tables"
        )
        print(f"  {'path':26}{'VARCHAR':11}{what}")
        for column in table.columns:
            print(f"  {column.name:26}{column.type:11}{column.meaning}")
        print()


def _cell(value: Any) -> str:
    """Return a value as one line of text with at most ``_LONGEST_CELL`` characters.

    Floats are rounded to six significant digits.
    """
    if value is None:
        return "-"
    is_number = isinstance(value, float | Decimal)
    text = f"{float(value):.6g}" if is_number else str(_plain(value))
    return formatting.clipped(text, _LONGEST_CELL)


def _plain(value: Any) -> Any:
    """Convert a value to types that JSON supports; NaN and infinity become ``None``."""
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dt.date):
        return value.isoformat()
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)


def _print_json(answer: QueryAnswer) -> None:
    names = _different(answer.columns)
    rows = (dict(zip(names, map(_plain, row), strict=True)) for row in answer.rows)
    is_ascii = not options.prints_all_characters()
    lines = ",\n".join(json.dumps(row, ensure_ascii=is_ascii, allow_nan=False) for row in rows)
    print(f"[\n{lines}\n]" if lines else "[]")


def _different(names: Sequence[str]) -> list[str]:
    """Return the names; a name that occurs again gets a suffix ``_1``, ``_2`` and so on."""
    found: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        found.append(next(one for one in itertools.chain([name], numbered) if one not in found))
    return found


def _report_skipped(answer: QueryAnswer) -> None:
    """Log what was skipped: the numbers, and the first ``_NAMED``; with ``-v`` all."""
    if not answer.skipped:
        return
    # A report of which two lists cannot be read is in the table twice.
    whys = Counter(why for _, why in {(one.path, one.why) for one in answer.skipped})
    partly, unlisted = whys.pop("partly read", 0), whys.pop("not listed", 0)
    count = f"{answer.reports} reports read"
    count += f" ({partly} of them in part)" if partly else ""
    count += f", {whys.total()} runs skipped" if whys else ""
    count += f", {unlisted} folders not listed" if unlisted else ""
    logger.info("%s; the table 'skipped' lists all of them:", count)
    named = len(answer.skipped) if logger.isEnabledFor(logging.DEBUG) else _NAMED
    for one in answer.skipped[:named]:
        logger.info("  %s: %s", one.why, formatting.one_line(f"{one.path}: {one.message}"))
    if len(answer.skipped) > named:
        logger.info("  and %d more (-v lists all)", len(answer.skipped) - named)
