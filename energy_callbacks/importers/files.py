"""Reads text, CSV and JSON files of other programs in pieces, which limits the use of memory."""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, cast

from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.extras import requires

HEAD_BYTES: Final = 65536
"""Number of characters at the beginning of a file by which its format is recognised."""
MOST_BYTES: Final = 4 * 2**30
"""Maximum number of characters of one unpacked file.

A log of eight cards with one sample per second has this size after about two months.
"""
# Number of characters that ``objects`` reads at a time.
_CHUNK: Final = 2**20
# Maximum length of a line in characters. The longest expected line is a sample of all-smi: it has
# about 100 kB if there are a few hundred processes.
_LONGEST_LINE: Final = 2**22
# If more than this number of consecutive ``{`` do not start a valid JSON object, the rest of the
# file is skipped.
_MOST_FAILURES: Final = 1000
# First bytes of files that gzip and Zstandard have compressed.
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# First bytes of files in UTF-16, which PowerShell writes if a program's output is redirected.
_BYTE_ORDER_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


class Damage:
    """Counts the parts of a file that could not be read.

    Attributes:
        places: number of damaged places, at which lines or records were skipped.
        is_cut_off: whether the file seems incomplete, or its end could not be read.
    """

    def __init__(self) -> None:
        self.places = 0
        self.is_cut_off = False


def head(path: Path) -> str:
    """Return the first ``HEAD_BYTES`` characters of a file; empty if the file cannot be read."""
    return next(_pieces(path, HEAD_BYTES, Damage()), "")


def lines(path: Path, damage: Damage, *, complete_only: bool = False) -> Iterator[str]:
    """Yield the lines of a text file; lines that are too long are skipped and count as damage.

    Args:
        path: file to read.
        damage: counts the skipped lines, and receives ``is_cut_off``.
        complete_only: whether to skip the last line if it has no line end, because a number in it
            may be cut off.
    """
    is_start = True
    for piece in _pieces(path, _LONGEST_LINE, damage, by_line=True):
        is_end = piece.endswith("\n")
        if is_start and (is_end or len(piece) < _LONGEST_LINE):
            if is_end or not complete_only:
                yield piece
            else:
                damage.is_cut_off = True
        elif is_end:
            damage.places += 1
        is_start = is_end


def cells(line: str) -> list[str]:
    """Return the cells of a CSV line without surrounding spaces; ``[]`` for an invalid line."""
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return []


def objects(path: Path, damage: Damage) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects after the first ``[`` of a file, even if the file is cut off.

    If an object is damaged, objects nested in it may be yielded instead. Callers must therefore
    check the keys of each object.

    Args:
        path: file to read.
        damage: counts the damaged places, and receives ``is_cut_off``.
    """
    decode = json.JSONDecoder().raw_decode
    chunks = _pieces(path, _CHUNK, damage)
    text = next((chunk for chunk in chunks if "[" in chunk), "")
    place, failures, is_closed = text.find("[") + 1, 0, False
    while failures <= _MOST_FAILURES:
        start = text.find("{", place)
        if start < 0:
            is_closed = is_closed or "]" in text[place:]
            text, place = next(chunks, ""), 0
            if not text:
                break
            continue
        is_closed = False
        try:
            record, place = decode(text, start)
        except (RecursionError, ValueError):
            if len(text) - start < _CHUNK and (chunk := next(chunks, "")):
                text, place = text[start:] + chunk, 0
                continue
            damage.places += not failures
            failures += 1
            place = start + 1
        else:
            failures = 0
            yield record
    damage.is_cut_off |= not is_closed


def _pieces(path: Path, size: int, damage: Damage, *, by_line: bool = False) -> Iterator[str]:
    """Yield the unpacked text of a file in pieces of at most ``size`` characters.

    The iteration ends at data that cannot be read or unpacked, and then sets ``damage.is_cut_off``.

    Args:
        path: file to read.
        size: maximum number of characters of a piece.
        damage: receives ``is_cut_off``.
        by_line: whether a piece also ends at each line end.

    Raises:
        JournalError: if the text is longer than ``MOST_BYTES``.
        MissingExtraError: if the file needs ``zstandard``, which is not installed.
    """
    left = MOST_BYTES
    try:
        with _open(path) as text:
            while piece := (text.readline if by_line else text.read)(size):
                left -= len(piece)
                if left < 0:
                    raise JournalError(
                        f"{path} contains more than {MOST_BYTES // 2**30} GiB of text; split "
                        "it and make a report of each part"
                    )
                yield piece
    except (EOFError, OSError, zlib.error, _zstd_error()):
        damage.is_cut_off = True


def _open(path: Path) -> IO[str]:
    with path.open("rb") as file:
        start = file.read(4)
    if start.startswith(_GZIP):
        raw = cast("IO[bytes]", gzip.GzipFile(path))
    else:
        raw = _unpacked(path) if start == _ZSTD else path.open("rb")
    encoding = "utf-16" if start[:2] in _BYTE_ORDER_MARKS else "utf-8-sig"
    return io.TextIOWrapper(raw, encoding=encoding, errors="replace")


def _unpacked(path: Path) -> IO[bytes]:
    with requires("zstandard", extra="zstd"):
        import zstandard
    # The file states how much memory is needed to unpack it; more than 128 MiB is refused.
    unpacker = zstandard.ZstdDecompressor(max_window_size=2**27)
    return unpacker.stream_reader(path.open("rb"), read_across_frames=True)


def _zstd_error() -> type[Exception]:
    """Return the exception that ``zstandard`` raises; ``EOFError`` if it is not installed."""
    try:
        import zstandard
    except ImportError:
        return EOFError
    return zstandard.ZstdError
