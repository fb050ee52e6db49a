"""Reads files of JSON lines with a header: journals, and recordings of readings."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from energy_callbacks.core.errors import JournalError

Record = dict[str, Any]


def parsed(lines: Iterable[str]) -> Iterator[Record]:
    """Yield all records with a ``type``; incomplete or damaged lines are left out."""
    decode = json.JSONDecoder().raw_decode  # half the time of json.loads on short lines
    for line in lines:
        try:
            record, end = decode(line)
        except json.JSONDecodeError:
            continue
        if not line[end:].strip() and isinstance(record, dict) and "type" in record:
            yield record


def check_version(header: Record, version: int, what: str, path: Path) -> None:
    """Check that this version can read a file.

    Raises:
        JournalError: if a newer version has written the file.
    """
    if int(header.get("version", 0)) > version:
        raise JournalError(
            f"{path} is a {what} of version {header['version']}, this installation reads up to "
            f"{version}; run: pip install --upgrade energy-callbacks"
        )
