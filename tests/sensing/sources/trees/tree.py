"""Builds folders, files and links like those below /sys."""

import os
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path

Files = Mapping[str, str | bytes | int]


def as_bytes(content: str | bytes | int) -> bytes:
    """Return the content of a file; numbers and texts end with a newline, as in /sys."""
    return content if isinstance(content, bytes) else f"{content}\n".encode()


class Tree:
    """A folder that stands for ``/sys``.

    Files are changed in place, so that a reader that has opened one sees its new content.

    Args:
        root: the folder; created if it does not exist.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def write(self, files: Files, below: str = "") -> None:
        """Create or change files.

        Args:
            files: content by path, relative to ``below``.
            below: folder, relative to the root.
        """
        for path, content in files.items():
            self.set(f"{below}/{path}" if below else path, content)

    def set(self, path: str, content: str | bytes | int) -> None:
        """Create or change a file in place; the new content is never empty in between."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        new = as_bytes(content)
        number = os.open(file, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(number, new, 0)
            os.ftruncate(number, len(new))
        finally:
            os.close(number)

    def link(self, path: str, target: str) -> None:
        """Create a relative link; both paths are relative to the root."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(os.path.relpath(self.root / target, file.parent))

    def remove(self, path: str) -> None:
        """Remove a file, a link or a folder, as the kernel does if a device is unplugged."""
        file = self.root / path
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        else:
            file.unlink()

    def load(self, description: Path) -> None:
        """Add the files and links of a TOML file.

        Table ``files`` has the content by path, table ``links`` the target by path. Numbers are
        written in decimal; ``hex:0a1b`` is a binary content.
        """
        tables = tomllib.loads(description.read_text())
        for path, content in tables.get("files", {}).items():
            is_binary = isinstance(content, str) and content.startswith("hex:")
            self.set(path, bytes.fromhex(content[4:]) if is_binary else content)
        for path, target in tables.get("links", {}).items():
            self.link(path, target)
