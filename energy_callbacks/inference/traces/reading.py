"""Reads a trace of any known format."""

from pathlib import Path

from energy_callbacks.inference.records import MeasuredWindow
from energy_callbacks.inference.traces import cells, igniter
from energy_callbacks.inference.traces.importers import FORMATS


def read(path: Path) -> list[MeasuredWindow]:
    """Return the windows of a file, whose format is recognised by its header.

    Raises:
        ValueError: if the file cannot be read, or its format is not known; errors about a cell have
            the file, the line and the column.
    """
    header = cells.header(path)
    if igniter.is_igniter(path, ",".join(header)):
        return igniter.read(path)
    for columns, parse in FORMATS:
        if columns <= set(header):
            return [parse(line) for line in cells.lines(path)]
    expected = "; ".join(",".join(sorted(columns)) for columns, _ in FORMATS)
    raise ValueError(
        f"{path}, line 1: the columns {','.join(header)!r} are those of no known format; a file "
        f"must have the columns of one of: {expected}"
    )
