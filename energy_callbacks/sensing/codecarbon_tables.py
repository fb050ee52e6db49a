"""Reads CodeCarbon's tables from its data files, without importing CodeCarbon.

CodeCarbon reads the same files with pandas, and importing both takes 0.3 to 0.6 s. That would delay
the start of the training.
"""

import json
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from energy_callbacks.core.extras import missing


def table(pattern: str) -> dict[str, Any]:
    """Return the contents of a JSON file; see ``path``."""
    return _json(path(pattern))


def path(pattern: str) -> Path:
    """Return the path of a data file.

    Args:
        pattern: path below CodeCarbon's folder ``data``. It may contain wildcards, for example if
            the path contains a year; the last match in alphabetical order is taken.

    Raises:
        MissingExtraError: if CodeCarbon is not installed.
        FileNotFoundError: if CodeCarbon does not have the file.
    """
    matches = sorted(_folder().glob(pattern))
    if not matches:
        raise FileNotFoundError(f"CodeCarbon has no file data/{pattern}")
    return matches[-1]


def cpu_rows() -> Iterator[tuple[str, str]]:
    """Yield the name of each CPU model in CodeCarbon's table and its thermal design power.

    The power is the text in the table, usually a number of watts; in some rows it is misspelled.
    """
    import csv  # takes 3 ms

    with path("hardware/cpu_power.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield row["Name"], row["TDP"]


def _folder() -> Path:
    spec = find_spec("codecarbon")  # imports nothing
    if spec is None or not spec.submodule_search_locations:
        raise missing("codecarbon")
    return Path(spec.submodule_search_locations[0]) / "data"


@cache
def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
