"""Converts the curves of the devices to a table, with one row per device and time.

The columns are the fields of ``Series``: ``key``, ``host``, ``t_s``, ``seen_s``, ``power_w``, ...
A value that is not known is an empty cell, never 0.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from energy_callbacks.core.extras import requires
from energy_callbacks.report.model.curves import Series

if TYPE_CHECKING:
    from pandas import DataFrame


def _columns(series: Sequence[Series]) -> dict[str, list[Any]]:
    table: dict[str, list[Any]] = {field.name: [] for field in fields(Series)}
    for one in series:
        count = len(one.t_s)
        for name, column in table.items():
            values = getattr(one, name)
            is_same = isinstance(values, str)
            column.extend([values] * count if is_same else values or [None] * count)
    return table


def as_csv(series: Sequence[Series]) -> str:
    """Return the table as CSV, with the names of the columns in the first line."""
    table = _columns(series)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return text.getvalue()


def as_dataframe(series: Sequence[Series]) -> "DataFrame":
    """Return the table as a data frame.

    Raises:
        MissingExtraError: if pandas is not installed.
    """
    with requires("pandas", extra="dataframe"):
        from pandas import DataFrame
    table = DataFrame(_columns(series))
    return table.astype(dict.fromkeys(table.columns.difference(("key", "host")), float))


def as_parquet(series: Sequence[Series]) -> bytes:
    """Return the table as a Parquet file.

    Raises:
        MissingExtraError: if pandas or PyArrow is not installed.
    """
    with requires("pyarrow", extra="dataframe"):
        import_module("pyarrow")  # pandas imports it, with an error of its own
    content: bytes = as_dataframe(series).to_parquet(engine="pyarrow", index=False)
    return content
