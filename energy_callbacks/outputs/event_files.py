"""Finds tags that the event files of a run contain already."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

# What a training writes once, it writes at its start; what comes later is not read, nor are more
# than the newest files of a directory that many trainings have shared.
_HEAD_BYTES: Final = 4_000_000
_MOST_FILES: Final = 4


def held(folder: str, words: Iterable[str]) -> set[str]:
    """Those words that stand in the first 4 MB of one of a run directory's newest event files.

    Protocol buffers keep text as it is, so a tag can be found without parsing (Protocol Buffers,
    "Encoding", length-delimited records). A directory that is not on this file system holds none.

    Args:
        folder: the run directory.
        words: such as tags.
    """
    newest = sorted(Path(folder).glob("events.out.tfevents.*"))[-_MOST_FILES:]
    heads = [_head(path) for path in newest]
    return {word for word in words if any(word.encode() in head for head in heads)}


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)
