"""Finds reports below a folder, or below an address that fsspec knows (``s3://...``).

Only what a table needs is read of a report: its first lines, up to its phases, are 3 kB of a
hundred or more. That its end is there too is looked at, so that a file that was cut off is noticed.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar

from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.extras import requires

Why = Literal["not read", "only page", "only journals"]

REPORT: Final = "energy_report.json"
_PAGE: Final = "energy_report.html"
_JOURNALS: Final = "attempts"
_DRAW: Final = "run: energy-callbacks report {}"
HEAD_BYTES: Final = 8192
_END_BYTES: Final = 16
# So many reads are under way at once if one takes longer than from memory: a disk answers many
# together. What is in memory is read faster by one thread. Both are found by reading a few.
_READERS: Final = 16
_PROBE, _QUICK_S = 100, 100e-6


@dataclass(frozen=True, slots=True)
class Skipped:
    """A run that is in no table but this one."""

    path: str
    why: Why
    message: str


Content = bytes | OSError
_T = TypeVar("_T")


class ReportLocation(Protocol):
    """A tree of folders with reports."""

    def find(self, skipped: list[Skipped]) -> Iterator[str]:
        """All reports below it, as they are found; runs without one go to ``skipped``."""
        ...

    def heads(self, paths: Sequence[str]) -> Iterator[tuple[Content, bool]]:
        """The first ``HEAD_BYTES`` of each report, and whether it has its end."""
        ...

    def wholes(self, paths: Sequence[str]) -> Iterator[Content]:
        """Each report."""
        ...


def place_of(path: str) -> ReportLocation:
    """The place of a path or address.

    Raises:
        JournalError: if there is nothing.
        MissingExtraError: for an address if fsspec is not installed.
    """
    if "://" in path:
        return _Remote(path)
    if not Path(path).exists():
        raise JournalError(f"{path} does not exist; give a folder with reports below it")
    return _Local(path)


class _Local:
    def __init__(self, path: str) -> None:
        self._path = path

    def find(self, skipped: list[Skipped]) -> Iterator[str]:
        if Path(self._path).is_file():
            yield self._path
            return
        folders = [self._path]
        while folders:
            folder = folders.pop()
            try:
                inner, names = _listed(folder)
            except OSError as error:
                skipped.append(Skipped(folder, "not read", str(error)))
                continue
            folders += inner
            if REPORT in names:
                yield f"{folder}/{REPORT}"
            elif _PAGE in names:
                skipped.append(_only_page(f"{folder}/{_PAGE}", folder))
            elif _JOURNALS in names and any(Path(folder, _JOURNALS).glob("*/*.jsonl")):
                skipped.append(_only_journals(folder))

    def heads(self, paths: Sequence[str]) -> Iterator[tuple[Content, bool]]:
        return _together(_head, paths)

    def wholes(self, paths: Sequence[str]) -> Iterator[Content]:
        return _together(_whole, paths)


def _listed(folder: str) -> tuple[list[str], set[str]]:
    """The folders in a folder, without its journals', and the names of all that it holds."""
    inner, names = [], set()
    with os.scandir(folder) as entries:
        for entry in entries:
            names.add(entry.name)
            if entry.is_dir(follow_symlinks=False) and entry.name != _JOURNALS:
                inner.append(entry.path)
    return inner, names


def _head(path: str) -> tuple[Content, bool]:
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            head = os.read(file, HEAD_BYTES)
            start = max(os.fstat(file).st_size - _END_BYTES, 0)
            return head, _is_end(os.pread(file, _END_BYTES, start))
        finally:
            os.close(file)
    except OSError as error:
        return error, False


def _whole(path: str) -> Content:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        return error


def _together(read: Callable[[str], _T], paths: Sequence[str]) -> Iterator[_T]:
    start_s = time.perf_counter()
    yield from map(read, paths[:_PROBE])
    rest = paths[_PROBE:]
    if time.perf_counter() - start_s < _QUICK_S * _PROBE:
        yield from map(read, rest)
        return
    with ThreadPoolExecutor(_READERS) as readers:
        groups = [rest[i : i + _PROBE] for i in range(0, len(rest), _PROBE)]
        for found in readers.map(lambda group: [read(path) for path in group], groups):
            yield from found


class _Remote:
    def __init__(self, address: str) -> None:
        with requires("fsspec", extra="query"):
            from fsspec.core import url_to_fs
        try:
            files, root = url_to_fs(address)
        except (ImportError, ValueError) as error:
            raise JournalError(f"{address}: {error}; give a folder or an address") from error
        self._files: Any = files
        self._root: str = root
        self._sizes: dict[str, int] = {}

    def find(self, skipped: list[Skipped]) -> Iterator[str]:
        try:
            listed: dict[str, Any] = self._files.find(self._root, detail=True)
        except Exception as error:  # each file system has errors of its own
            raise JournalError(f"{self._root} cannot be listed: {error}") from error
        if not listed:
            raise JournalError(f"{self._root} holds nothing; give a folder with reports below it")
        self._sizes = {p: one["size"] for p, one in listed.items() if p.endswith(f"/{REPORT}")}
        with_report = {path.removesuffix(f"/{REPORT}") for path in self._sizes}
        pages = {p.removesuffix(f"/{_PAGE}") for p in listed if p.endswith(f"/{_PAGE}")}
        journals = {
            path.rpartition(f"/{_JOURNALS}/")[0]
            for path in listed
            if f"/{_JOURNALS}/" in path and path.endswith(".jsonl")
        }
        skipped += [_only_page(f"{one}/{_PAGE}", one) for one in sorted(pages - with_report)]
        skipped += [_only_journals(one) for one in sorted(journals - with_report - pages)]
        yield from self._sizes

    def heads(self, paths: Sequence[str]) -> Iterator[tuple[Content, bool]]:
        sizes = [self._sizes[path] for path in paths]
        heads = self._ranges(paths, [0] * len(paths), [min(size, HEAD_BYTES) for size in sizes])
        ends = self._ranges(paths, [max(size - _END_BYTES, 0) for size in sizes], sizes)
        for head, end in zip(heads, ends, strict=True):
            yield head, isinstance(end, bytes) and _is_end(end)

    def wholes(self, paths: Sequence[str]) -> Iterator[Content]:
        sizes = [self._sizes[path] for path in paths]
        return iter(self._ranges(paths, [0] * len(paths), sizes))

    def _ranges(
        self, paths: Sequence[str], starts: Sequence[int], ends: Sequence[int]
    ) -> list[Content]:
        found = self._files.cat_ranges(list(paths), starts, ends, on_error="return")
        return [one if isinstance(one, bytes) else OSError(str(one)) for one in found]


def _is_end(end: bytes) -> bool:
    return end.rstrip().endswith(b"}")


def _only_page(page: str, folder: str) -> Skipped:
    return Skipped(folder, "only page", f"no {REPORT} beside {_PAGE}; {_DRAW.format(page)}")


def _only_journals(folder: str) -> Skipped:
    return Skipped(folder, "only journals", f"no {REPORT}; {_DRAW.format(folder)}")
