"""Finds and reads the settings file of the working directory.

In the working directory and then in each folder above it, ``energy_callbacks.toml`` is looked for,
then a ``pyproject.toml`` with a table ``[tool.energy_callbacks]``. Only the first file that is
found is read.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

_OWN_NAME: Final = "energy_callbacks.toml"
_TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    _OWN_NAME: (),
    "pyproject.toml": ("tool", "energy_callbacks"),
}
# A pyproject.toml without any of these words has no settings of this package, and is not parsed.
_WORDS: Final = (b"energy_callbacks", b"tool.energy-callbacks")


class SettingsFile(NamedTuple):
    """The settings in a file.

    Attributes:
        path: absolute path of the file.
        label: path and table, for messages.
        values: values by key, as TOML types.
    """

    path: Path
    label: str
    values: Mapping[str, Any]


def nearest() -> SettingsFile | None:
    """Return the settings file that applies in the working directory; ``None`` if there is none.

    Raises:
        ValueError: if a file cannot be read or is not valid TOML, or if its settings are not in the
            right table.
    """
    try:
        start = Path.cwd()
    except FileNotFoundError:  # the working directory was deleted
        return None
    for folder in (start, *start.parents):
        for name in _TABLES:
            path = folder / name
            # ``Path.is_file`` raises an exception for a folder that must not be entered.
            is_there = os.path.isfile(path)  # noqa: PTH113 - see above
            if is_there and (found := _read(path)) is not None:
                return found
    return None


def _read(path: Path) -> SettingsFile | None:
    try:
        status = path.stat()
        return _parsed(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise ValueError(f"the settings file {path} cannot be read: {error}") from error


@lru_cache(maxsize=16)
def _parsed(path: Path, _mtime_ns: int, _size: int) -> SettingsFile | None:
    """Return the settings in a file; ``None`` if a ``pyproject.toml`` has none."""
    content = path.read_bytes()
    if path.name != _OWN_NAME and not any(word in content for word in _WORDS):
        return None
    import tomllib

    try:
        values = tomllib.loads(content.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"the settings file {path} is not valid TOML: {error}") from error
    table = _TABLES[path.name]
    _check_table(path, values.get("tool"))
    for key in table:
        values = values.get(key, {})
        if not isinstance(values, dict):
            name = ".".join(table)
            raise ValueError(f"{path}: {name} must be a table, got {values!r}; write [{name}]")
    label = f"{path}, [{'.'.join(table)}]" if table else str(path)
    is_ours = bool(values) or not table
    return SettingsFile(path, label, values) if is_ours else None


def _check_table(path: Path, tool: object) -> None:
    """Check that settings are not in a table that is not read.

    Raises:
        ValueError: if they are.
    """
    if not isinstance(tool, dict):
        return
    if path.name == _OWN_NAME and "energy_callbacks" in tool:
        raise ValueError(f"{path}: leave out the table's header [tool.energy_callbacks] here")
    if path.name != _OWN_NAME and "energy-callbacks" in tool:
        raise ValueError(
            f"{path}: the table [tool.energy-callbacks] is not read; write [tool.energy_callbacks]"
        )
