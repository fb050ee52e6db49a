"""Atomic writes: a file is replaced completely or not at all."""

import os
from pathlib import Path


def write(path: Path, content: str | bytes) -> None:
    """Write a temporary file in the same folder, then rename it to ``path``.

    Readers therefore never see a partly written file. Missing folders are created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
