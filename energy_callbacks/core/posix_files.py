"""Operations on open files that Windows does not have; there, they raise ``OSError``."""

import os
import sys
from typing import Final

_MISSING: Final = "is not possible on Windows; use Linux"


def lock(descriptor: int) -> None:
    """Lock a file, without waiting.

    The operating system releases the lock when the file is closed, also if the process is killed.
    A child process that inherits the file holds the lock, too.

    Raises:
        BlockingIOError: if another process holds the lock.
        OSError: on Windows.
    """
    if sys.platform == "win32":
        raise OSError(f"a lock that ends with the process {_MISSING}")
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def read_start(descriptor: int, size: int) -> bytes:
    """Return the first ``size`` bytes of a file, or fewer if it is shorter.

    Sensors in files return a new value if they are read from the start again.

    Raises:
        OSError: if the file cannot be read, and on Windows.
    """
    if sys.platform == "win32":
        raise OSError(f"reading the file of a sensor {_MISSING}")
    return os.pread(descriptor, size, 0)
