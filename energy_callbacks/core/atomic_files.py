"""Creates files and folders that other users cannot change, and locks files.

Run folders may lie in folders that several users can write, such as ``/tmp``. There, another user
could create a link with the name of a file that is going to be written. Symbolic links are not
followed.
"""

import errno
import os
import sys
from pathlib import Path
from typing import Final

# Permissions of new folders and files, from which the umask removes more. The default of Python,
# 0o777 and 0o666, lets everybody write if the umask is 0, as in some containers.
_FOLDER_MODE: Final = 0o755
_FILE_MODE: Final = 0o644
# Not in Windows: O_NOFOLLOW. Only in Windows: O_BINARY, which keeps ends of lines as written.
_FLAGS: Final = os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def make_folder(path: Path, *, exist_ok: bool = True) -> None:
    """Create a folder and its missing parents, writable for their owner only.

    Raises:
        FileExistsError: if ``path`` is a file, or if it exists and ``exist_ok`` is ``False``.
    """
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(_FOLDER_MODE, exist_ok=True)
    path.mkdir(_FOLDER_MODE, exist_ok=exist_ok)


def open_to_append(path: Path) -> int:
    """Open a file for reading and appending, and return its descriptor.

    The file and missing folders are created.

    Raises:
        OSError: if the file cannot be written, or if ``path`` is a symbolic link.
    """
    return _opened(path, os.O_RDWR | os.O_APPEND)


def open_new(path: Path) -> int:
    """Open an empty file for writing and return its descriptor; an older file is replaced.

    Missing folders are created. If ``path`` is a symbolic link, the link is replaced.

    Raises:
        OSError: if the file cannot be created.
    """
    path.unlink(missing_ok=True)
    return _opened(path, os.O_WRONLY | os.O_EXCL)


def _opened(path: Path, flags: int) -> int:
    make_folder(path.parent)
    try:
        return os.open(path, flags | _FLAGS, _FILE_MODE)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        problem = (
            "this file is a symbolic link, which is not followed when the file is "
            "written; remove the link"
        )
        raise OSError(errno.ELOOP, problem, str(path)) from error


def write(path: Path, content: str | bytes) -> None:
    """Write a temporary file in the same folder, then rename it to ``path``.

    Readers therefore never see a partly written file. Missing folders are created. If ``path`` is a
    symbolic link, the link is replaced.

    Raises:
        OSError: if the file cannot be written; it names ``path``.
    """
    draft = path.parent / f".{path.name[:200]}.{os.urandom(8).hex()}"
    try:
        descriptor = open_new(draft)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        if error.filename in (None, str(draft)):
            error.filename, error.filename2 = str(path), None
        raise


def lock(descriptor: int) -> None:
    """Lock an open file, without waiting.

    The operating system releases the lock when the file is closed, also if the process is killed.
    A child process that inherits the file holds the lock, too.

    Raises:
        BlockingIOError: if another process holds the lock.
        OSError: on Windows.
    """
    if sys.platform == "win32":
        raise OSError("locks that end with the process do not exist on Windows; use Linux")
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
