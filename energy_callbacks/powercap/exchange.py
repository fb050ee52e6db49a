"""How the ranks of a run tell each other settings and windows: small files in the run folder.

There is no collective operation, so the training is not delayed. Each process writes its own files,
which are replaced as a whole::

    <run folder>/attempts/<n>/power_limit/rank-<rank>.json    cards and windows of a rank
                                          node-<host>.json    what the leader of a host has set
                                          decision.json       what rank 0 has decided
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from energy_callbacks.core import atomic_files

Record = Mapping[str, Any]


class Exchange(Protocol):
    """Records by name, which all ranks of an attempt can read."""

    def post(self, name: str, record: Record) -> None:
        """Write a record; a record of the same name is replaced."""
        ...

    def read(self, prefix: str) -> dict[str, Record]:
        """Return all records whose names begin with ``prefix``, by name."""
        ...


class MemoryExchange:
    """The exchange of a process without other ranks."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}

    def post(self, name: str, record: Record) -> None:
        """See ``Exchange``."""
        self._records[name] = record

    def read(self, prefix: str) -> dict[str, Record]:
        """See ``Exchange``."""
        return {name: one for name, one in self._records.items() if name.startswith(prefix)}


class FolderExchange:
    """An exchange through a folder that all ranks share.

    Args:
        folder: the folder; it is created when the first record is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def post(self, name: str, record: Record) -> None:
        """See ``Exchange``."""
        atomic_files.write(self._folder / f"{name}.json", json.dumps(record))

    def read(self, prefix: str) -> dict[str, Record]:
        """See ``Exchange``."""
        paths = self._folder.glob(f"{prefix}*.json")
        return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}
