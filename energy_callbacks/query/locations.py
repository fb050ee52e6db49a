"""Finds and reads reports below a folder, or below an address of fsspec (``s3://...``).

The table ``reports`` needs only the fields before the field ``phases`` of a report. They take about
3 kB, and a whole report takes 100 kB or more. Therefore, for this table, only the beginning and the
last bytes of each report are read. The last bytes show whether a file is truncated. For the other
tables, whole reports are read.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.extras import requires

Why = Literal["not read", "partly read", "not listed", "only page", "only journals"]

REPORT: Final = "energy_report.json"
_PAGE: Final = "energy_report.html"
_JOURNALS: Final = "attempts"
_DRAW: Final = "run: energy-callbacks report {}"
# Numbers of bytes that are read at the beginning and at the end of a report for the table
# ``reports``.
HEAD_BYTES: Final = 8192
_END_BYTES: Final = 16
# Number of threads that read reports if the disk is slow. If the files are cached in memory, one
# thread is faster. Therefore only one thread is used if the first ``_PROBE`` reports take less than
# ``_QUICK_S`` seconds each, on average. Otherwise each thread reads groups of ``_PROBE`` reports.
_READERS: Final = 16
_PROBE, _QUICK_S = 100, 100e-6


@dataclass(frozen=True, slots=True)
class Skipped:
    """A run without a report, a report that cannot be read, or a folder that cannot be listed.

    Each instance is one row of the table ``skipped``. If only a part of a report is invalid, such
    as the list ``phases``, the report is in the table ``reports``, too.

    Attributes:
        path: path of the report or folder that cannot be read, or of the run folder without a
            report.
        why: ``not read``: the report cannot be read; ``partly read``: a list in it, such as
            ``phases``, cannot; ``not listed``: the folder cannot be listed, so that its runs are
            not known; ``only page``: the run folder contains an HTML page but no JSON report;
            ``only journals``: it contains journals only.
        message: the error; or what is missing and which command creates it.
    """

    path: str
    why: Why
    message: str


# The bytes that were read from a report, or the error if the report cannot be read.
Content = bytes | OSError


def place_of(path: str) -> "ReportLocation":
    """Return an object that finds and reads the reports below a path or an address.

    Raises:
        JournalError: if the path does not exist, or if fsspec cannot use the address.
        MissingExtraError: if ``path`` is an address and fsspec is not installed.
    """
    if "://" in path:
        return _Remote(path)
    if not Path(path).exists():
        raise JournalError(f"{path} does not exist; give a folder with reports below it")
    return _Local(path)


class _Local:
    """Reports below a local folder, or one local report."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find(self, skipped: list[Skipped]) -> Iterator[str]:
        """Yield the paths of all reports.

        Runs without a report, and folders that cannot be listed, are appended to ``skipped``.
        """
        if Path(self._path).is_file():
            yield self._path
            return

        def skip(error: OSError) -> None:
            skipped.append(Skipped(error.filename, "not listed", str(error)))

        for folder, inner, files in os.walk(self._path, onerror=skip):
            names = {*inner, *files}
            inner[:] = [name for name in reversed(inner) if name != _JOURNALS]
            if REPORT in names:
                yield f"{folder}/{REPORT}"
            elif _PAGE in names:
                skipped.append(_only_page(f"{folder}/{_PAGE}", folder))
            elif _JOURNALS in names and any(Path(folder, _JOURNALS).glob("*/*.jsonl")):
                skipped.append(_only_journals(folder))

    def heads(self, paths: Sequence[str]) -> Iterator[Content]:
        """Yield the first ``HEAD_BYTES`` of each report, or the error if it cannot be used.

        A report cannot be used if it is unreadable or truncated.
        """
        return _read_all(_head, paths)

    def wholes(self, paths: Sequence[str]) -> Iterator[Content]:
        """Yield the whole content of each report, or the error if it cannot be read."""
        return _read_all(Path.read_bytes, paths)


def _head(path: Path) -> Content:
    with path.open("rb", buffering=0) as file:
        head = file.read(HEAD_BYTES)
        start = max(os.fstat(file.fileno()).st_size - _END_BYTES, 0)
        file.seek(start)
        return _checked(head, file.read(_END_BYTES))


def _read_all(read_file: Callable[[Path], Content], paths: Sequence[str]) -> Iterator[Content]:
    """Yield the content of each report, in order; read in parallel if reading is slow."""

    def read(path: str) -> Content:
        try:
            return read_file(Path(path))
        except OSError as error:
            return error

    start_s = time.perf_counter()
    yield from map(read, paths[:_PROBE])
    rest = paths[_PROBE:]
    if time.perf_counter() - start_s < _QUICK_S * _PROBE:
        yield from map(read, rest)
        return
    with ThreadPoolExecutor(_READERS) as readers:
        groups = [rest[i : i + _PROBE] for i in range(0, len(rest), _PROBE)]
        for contents in readers.map(lambda group: [read(path) for path in group], groups):
            yield from contents


class _Remote:
    """Reports below an address of fsspec. Call ``find`` before the other methods."""

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
        """Yield the paths of all reports; append runs without a report to ``skipped``.

        Raises:
            JournalError: if the address cannot be listed, or if it contains no files.
        """
        try:
            listed: dict[str, Any] = self._files.find(self._root, detail=True)
        except Exception as error:  # every file system raises its own errors
            raise JournalError(f"{self._root} cannot be listed: {error}") from error
        if not listed:
            raise JournalError(f"{self._root} is empty; give a folder with reports below it")
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

    def heads(self, paths: Sequence[str]) -> Iterator[Content]:
        """Yield the first ``HEAD_BYTES`` of each report, or the error if it cannot be used.

        A report cannot be used if it is unreadable or truncated.
        """
        sizes = [self._sizes[path] for path in paths]
        heads = self._ranges(paths, [0] * len(paths), [min(size, HEAD_BYTES) for size in sizes])
        ends = self._ranges(paths, [max(size - _END_BYTES, 0) for size in sizes], sizes)
        return map(_checked, heads, ends)

    def wholes(self, paths: Sequence[str]) -> Iterator[Content]:
        """Yield the whole content of each report, or the error if it cannot be read."""
        sizes = [self._sizes[path] for path in paths]
        return iter(self._ranges(paths, [0] * len(paths), sizes))

    def _ranges(
        self, paths: Sequence[str], starts: Sequence[int], ends: Sequence[int]
    ) -> list[Content]:
        contents = self._files.cat_ranges(list(paths), starts, ends, on_error="return")
        # ``cat_ranges`` returns exceptions of any type.
        return [
            one if isinstance(one, bytes | OSError) else OSError(str(one) or repr(one))
            for one in contents
        ]


ReportLocation = _Local | _Remote


def _checked(head: Content, end: Content) -> Content:
    """Return the head of a report, or an error if the report does not end as a JSON object does.

    Args:
        head: first bytes of the report, or the error.
        end: last bytes of the report, or the error.
    """
    if isinstance(head, OSError):
        return head
    if isinstance(end, OSError):
        return end
    return head if end.rstrip().endswith(b"}") else OSError("the report is truncated")


def _only_page(page: str, folder: str) -> Skipped:
    return Skipped(folder, "only page", f"no {REPORT} beside {_PAGE}; {_DRAW.format(page)}")


def _only_journals(folder: str) -> Skipped:
    return Skipped(folder, "only journals", f"no {REPORT}; {_DRAW.format(folder)}")
