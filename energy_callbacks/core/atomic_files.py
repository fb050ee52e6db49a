"""Atomic writes: files appear whole or not at all."""

import os
from pathlib import Path


def write(path: Path, content: str | bytes) -> None:
    """Write to a temporary file beside it and rename, so that no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
