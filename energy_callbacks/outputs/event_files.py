"""What stands already in the event files of a run."""

from pathlib import Path
from typing import Final

# What a training writes once, it writes at its start; what comes later is not read, nor are more
# than the newest files of a directory that many trainings have shared.
_HEAD_BYTES: Final = 4_000_000
_MOST_FILES: Final = 4


def holds(folder: str, word: str) -> bool:
    """Whether a word stands in the first 4 MB of one of the newest event files of a run directory.

    Protocol buffers keep text as it is, so a tag can be found without parsing (Protocol Buffers,
    "Encoding", length-delimited records). A directory that is not on this file system holds none.

    Args:
        folder: the run directory.
        word: such as a tag.
    """
    newest = sorted(Path(folder).glob("events.out.tfevents.*"))[-_MOST_FILES:]
    return any(word.encode() in _head(path) for path in newest)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)
