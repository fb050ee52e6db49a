"""Files of a checkpoint, taken apart into values that compare with ``==``."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def leaves(value: Any, folder: Path, at: str = "") -> Iterator[tuple[str, Any]]:
    """Every number, word and array below a value, with its place; a path is told from a folder."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, folder, f"{at}/{key}".replace(str(folder), "."))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from leaves(item, folder, f"{at}/{number}")
    elif hasattr(value, "numpy"):
        yield at, value.numpy().tobytes()
    elif hasattr(value, "tobytes"):
        yield at, value.tobytes()
    else:
        yield at, repr(value).replace(str(folder), ".")


def of_json(path: Path) -> Any:
    """A file of JSON."""
    return json.loads(path.read_text(encoding="utf-8"))
