"""Converts the content of checkpoint files into single values that ``==`` can compare."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def leaves(value: Any, folder: Path, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the location and content of every number, string and array nested in a value.

    Args:
        value: mappings and sequences of any depth, or a single value.
        folder: folder of the training; its path is replaced by ``.`` in locations and strings.
        at: location of ``value``.
    """
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
    """Return the content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))
