"""Reads JSON-lines files that begin with a header line: journals, and recordings of readings."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from energy_callbacks.core.errors import JournalError

Record = dict[str, Any]


def parsed(lines: Iterable[str]) -> Iterator[Record]:
    """Yield the JSON objects that have a key ``type``; all other lines are skipped."""
    decode = json.JSONDecoder().raw_decode  # takes half the time of json.loads on short lines
    for line in lines:
        try:
            record, end = decode(line)
        except json.JSONDecodeError:
            continue
        if not line[end:].strip() and isinstance(record, dict) and "type" in record:
            yield record


def check_version(header: Record, version: int, what: str, path: Path) -> None:
    """Check that this version of the package can read a file.

    Args:
        header: first record of the file.
        version: newest version of the file format that can be read.
        what: name of the file format, for the message.
        path: path of the file, for the message.

    Raises:
        JournalError: if the version in the header is newer.
    """
    if int(header.get("version", 0)) > version:
        raise JournalError(
            f"{path} is a {what} of version {header['version']}, this installation reads up to "
            f"{version}; run: pip install --upgrade energy-callbacks"
        )
