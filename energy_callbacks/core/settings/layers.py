"""Combines arguments, environment variables, the settings file and defaults, in this order."""

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from energy_callbacks.core.settings import files

PREFIX: Final = "ENERGY_CALLBACKS_"
"""Beginning of the names of all environment variables of this package."""
ARGUMENT: Final = "argument"
DEFAULT: Final = "default"
# Environment variables that are no settings.
_OTHER_VARIABLES: Final = (
    "DISABLED", "NO_COMMAND", "RUN_DIR", "REPORT_PROCESS", "LIGHTNING", "POWERCAP", "STATE_DIR",
    "SYSFS",
)  # fmt: skip
# These settings describe the same thing. If a source sets one of them, the others are not taken
# from sources after it: the intensity of a file is not that of a country in an argument.
_LOCATION: Final = frozenset({"country", "region", "carbon_intensity"})


@dataclass(frozen=True, slots=True)
class Setting:
    """What is needed to read a setting that is not an argument.

    Attributes:
        default: value of the setting if it is set nowhere.
        parse: function that converts the text of an environment variable.
        is_path: whether texts are paths, which are relative to the folder of the settings file.
    """

    default: Any
    parse: Callable[[str], Any]
    is_path: bool = False


class Found(NamedTuple):
    """A value and where it comes from: ``argument``, ``default``, a variable, or a file."""

    value: Any
    origin: str


def resolve(
    settings: Mapping[str, Setting], arguments: Mapping[str, Any], *, only_arguments: bool = False
) -> dict[str, Found]:
    """Return the value of each setting, from the first source that sets it.

    Args:
        settings: all settings by name.
        arguments: values that were passed as arguments.
        only_arguments: whether environment and file are not read.

    Raises:
        ValueError: if the environment or the file has an unknown setting, or if the file cannot be
            read.
    """
    found = {name: Found(value, ARGUMENT) for name, value in arguments.items()}
    for source in () if only_arguments else (_of_environment, _of_file):
        taken = _LOCATION if _LOCATION & found.keys() else frozenset()
        new = source(settings)
        found |= {name: new[name] for name in new.keys() - found.keys() - taken}
    return {
        name: found.get(name, Found(setting.default, DEFAULT)) for name, setting in settings.items()
    }


def name_of_variable(variable: str) -> str:
    """Return the origin of a setting from an environment variable."""
    return f"environment variable {variable}"


def _of_environment(settings: Mapping[str, Setting]) -> dict[str, Found]:
    """Return the settings in the environment; an empty value counts as no value."""
    found = {}
    for variable, value in os.environ.items():
        name = variable.removeprefix(PREFIX)
        if name == variable or name in _OTHER_VARIABLES or not value.strip():
            continue
        setting = settings.get(name.lower())
        if setting is None or not name.isupper():
            known = (f"{PREFIX}{one}" for one in (*map(str.upper, settings), *_OTHER_VARIABLES))
            raise ValueError(
                f"the environment variable {variable}={value} is not a setting; "
                + _hint(variable.upper(), known)
            )
        found[name.lower()] = Found(setting.parse(value.strip()), name_of_variable(variable))
    return found


def _of_file(settings: Mapping[str, Setting]) -> dict[str, Found]:
    file = files.nearest()
    if file is None:
        return {}
    found = {}
    for name, value in file.values.items():
        setting = settings.get(name)
        if setting is None:
            hint = _hint(name, settings)
            raise ValueError(f"{file.label}: {name} = {value!r} is not a setting; {hint}")
        is_path = setting.is_path and isinstance(value, str)
        found[name] = Found(_beside(file.path, value) if is_path else value, file.label)
    return found


def _beside(file: Path, value: str) -> str:
    """Return a path relative to the folder of a file; absolute paths and ``~`` stay as they are."""
    return value if value.startswith("~") else str(file.parent / value)


def _hint(name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, 1)
    return f"did you mean {close[0]}?" if close else f"the settings are {', '.join(names)}"
