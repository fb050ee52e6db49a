"""Reads files of other programs in pieces, so that memory stays bounded."""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final, cast

from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.extras import requires

HEAD_BYTES: Final = 65536
MOST_BYTES: Final = 4 * 2**30
"""Limit of bytes of one unpacked file: two months of eight cards, a sample a second."""
_CHUNK: Final = 2**20
# A frame of all-smi with some hundred processes is about 100 kB.
_LINE: Final = 2**22
# Places in a file at which no record begins, one after the other, until the rest is given up.
_GIVE_UP: Final = 1000
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# PowerShell writes the output of a program so.
_BYTE_ORDER_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


class Damage:
    """Counts what could not be read of a file.

    Attributes:
        places: lines or records that were left out.
        is_cut_off: whether the file ends within a record.
    """

    def __init__(self) -> None:
        self.places = 0
        self.is_cut_off = False


def head(path: Path) -> str:
    """The beginning of a file as text, unpacked; empty if it cannot be unpacked."""
    with ExitStack() as stack:
        try:
            return _open(path, stack).read(HEAD_BYTES)
        except (EOFError, OSError, zlib.error, _zstd_error()):
            return ""


def lines(path: Path, damage: Damage, *, whole: bool = False) -> Iterator[str]:
    """Lines of a text file; those that are too long to be one are damage.

    Args:
        path: of the file.
        damage: counts them.
        whole: a last line without its end is left out: a number in it may have been cut.
    """
    with ExitStack() as stack:
        text, left, is_start = _open(path, stack), MOST_BYTES, True
        while line := _read(text.readline, _LINE, damage):
            left = _less(left, len(line), path)
            is_end = line.endswith("\n")
            if whole and is_start and not is_end and len(line) < _LINE:
                damage.is_cut_off = True
            elif is_start and (is_end or len(line) < _LINE):
                yield line
            elif is_end:
                damage.places += 1
            is_start = is_end


def objects(path: Path, damage: Damage) -> Iterator[dict[str, Any]]:
    """The JSON objects in the first array of a file, also if its end is missing.

    If one is damaged, objects inside it may come instead: look at their keys.
    """
    found = _Objects(damage)
    with ExitStack() as stack:
        text, left = _open(path, stack), MOST_BYTES
        while not found.is_hopeless and (chunk := _read(text.read, _CHUNK, damage)):
            left = _less(left, len(chunk), path)
            yield from found.add(chunk, _CHUNK)
        yield from found.add("", 0)
        damage.is_cut_off |= not found.is_closed


class _Objects:
    """Decodes one object after the other from a text that comes in pieces.

    Attributes:
        is_closed: whether the array has ended after the last object.
        is_hopeless: whether nothing has been one for this long that the rest is given up.
    """

    def __init__(self, damage: Damage) -> None:
        self.is_closed = False
        self.is_hopeless = False
        self._damage = damage
        self._decode = json.JSONDecoder().raw_decode
        self._rest = ""
        self._is_inside = False
        self._failures = 0

    def add(self, chunk: str, patience: int) -> Iterator[dict[str, Any]]:
        """Objects that are whole by now; one that is longer than ``patience`` is damaged."""
        text, place = self._rest + chunk, 0
        if not self._is_inside:
            place = text.find("[") + 1
            self._is_inside = place > 0
        while self._is_inside and (start := text.find("{", place)) >= 0:
            self.is_closed = False
            try:
                record, place = self._decode(text, start)
            except (RecursionError, ValueError):
                if len(text) - start < patience:
                    self._rest = text[start:]
                    return
                self._fail()
                if self.is_hopeless:
                    return
                place = start + 1
            else:
                self._failures = 0
                yield record
        self.is_closed |= "]" in text[place:]
        self._rest = ""

    def _fail(self) -> None:
        self._damage.places += not self._failures
        self._failures += 1
        self.is_hopeless = self._failures > _GIVE_UP


def cells(line: str) -> list[str]:
    """The trimmed cells of one line of CSV; none if it is no such line."""
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return []


def _read(read: Any, size: int, damage: Damage) -> str:
    """The next piece; if a packed file ends too early, nothing."""
    try:
        return str(read(size))
    except (EOFError, OSError, zlib.error, _zstd_error()):
        damage.is_cut_off = True
        return ""


def _less(left: int, size: int, path: Path) -> int:
    if size > left:
        raise JournalError(
            f"{path} holds more than {MOST_BYTES // 2**30} GiB of text; "
            "split it and report the parts"
        )
    return left - size


def _open(path: Path, stack: ExitStack) -> IO[str]:
    raw: IO[bytes] = stack.enter_context(path.open("rb"))
    start = raw.read(4)
    raw.seek(0)
    if start.startswith(_GZIP):
        raw = stack.enter_context(cast("IO[bytes]", gzip.GzipFile(fileobj=raw)))
    elif start == _ZSTD:
        raw = stack.enter_context(_unpacked(raw))
    encoding = "utf-16" if start[:2] in _BYTE_ORDER_MARKS else "utf-8-sig"
    return io.TextIOWrapper(raw, encoding=encoding, errors="replace")


def _unpacked(raw: IO[bytes]) -> IO[bytes]:
    with requires("zstandard", extra="zstd"):
        import zstandard
    # A file says itself how much memory it needs to be unpacked: at most 128 MiB.
    unpacker = zstandard.ZstdDecompressor(max_window_size=2**27)
    return unpacker.stream_reader(raw, read_across_frames=True)


def _zstd_error() -> type[Exception]:
    """The errors of ``zstandard`` for a damaged file, if it is installed."""
    try:
        import zstandard
    except ImportError:
        return EOFError
    return zstandard.ZstdError
