"""Keeps files open, and reads their present content."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from energy_callbacks.sensing.clock import Clock

# Largest content of a file, byte: one page, the limit of sysfs (Linux, filesystems/sysfs.rst).
_MOST_BYTES: Final = 4096


def read_start(descriptor: int, size: int) -> bytes:
    """Return the first ``size`` bytes of an open file, or fewer if it is shorter.

    Raises:
        OSError: if the file cannot be read, and on Windows, which has no sensors in files.
    """
    if sys.platform == "win32":
        raise OSError("sensors are read from files on Linux only")
    return os.pread(descriptor, size, 0)


@dataclass(frozen=True, slots=True)
class Content:
    """What a file contained.

    Attributes:
        data: content of the file.
        t_s: monotonic time in the middle of the call.
        t_error_s: half of the duration of the call, s.
    """

    data: bytes
    t_s: float
    t_error_s: float


class OpenFiles:
    """Reads files by their path; a read at offset 0 returns the present content.

    Args:
        clock: clock that gives the times of the contents.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers: dict[Path, int] = {}

    def add(self, path: Path) -> None:
        """Open a file, if it is not open yet.

        Raises:
            OSError: if it cannot be opened; ``filename`` is the path.
        """
        if path not in self._numbers:
            self._numbers[path] = os.open(path, os.O_RDONLY)

    def content(self, path: Path) -> Content:
        """Return the present content of an open file.

        Raises:
            OSError: if the file cannot be read.
        """
        before_s = self._clock.monotonic_s()
        data = read_start(self._numbers[path], _MOST_BYTES)
        after_s = self._clock.monotonic_s()
        return Content(data, (before_s + after_s) / 2.0, (after_s - before_s) / 2.0)

    def close(self) -> None:
        """Close all files; safe to call twice."""
        numbers, self._numbers = self._numbers, {}
        for number in numbers.values():
            os.close(number)
