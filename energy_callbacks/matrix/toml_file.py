"""Reads a matrix from a TOML file and checks every key and value."""

import dataclasses
import difflib
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from energy_callbacks.matrix.engines import OPTIONS
from energy_callbacks.matrix.plan import MatrixPlan

_ENERGY: Final = ("country", "region", "pue", "price_per_kwh")
_TABLES: Final = ("parameters", "env", "baseline", *OPTIONS)
_OURS: Final = ("energy", "folder")


def load(path: Path, engine: str | None = None) -> tuple[MatrixPlan, Any]:
    """The plan in a file, and the options of its engine.

    Args:
        path: of the TOML file; the command runs in its folder.
        engine: instead of the file's.

    Raises:
        ValueError: with the file's name, what is wrong, the value got, and what to do.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        if engine is not None:
            found["engine"] = engine
        return parsed(found, path.resolve().parent)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def parsed(found: Mapping[str, Any], folder: Path) -> tuple[MatrixPlan, Any]:
    """The plan in a file's content, and the options of its engine.

    Raises:
        ValueError: for a key that is not known, and for a value that cannot be run.
        TypeError: for a value of the wrong type.
    """
    plain = [
        one.name for one in dataclasses.fields(MatrixPlan) if one.name not in (*_OURS, *_TABLES)
    ]
    _check_keys(found, (*plain, *_ENERGY, *_TABLES), "")
    for name in _TABLES:
        if not isinstance(found.get(name, {}), dict):
            raise TypeError(f"{name} must be a table, got {found[name]!r}; write [{name}]")
    for name in ("name", "command", "parameters"):
        if name not in found:
            raise ValueError(f"{name} is missing; a matrix needs name, command and [parameters]")
    options = {name: _options(name, found.get(name, {})) for name in OPTIONS}
    given = {name: value for name, value in found.items() if name not in (*OPTIONS, *_ENERGY)}
    energy = {name: found[name] for name in _ENERGY if name in found}
    plan = MatrixPlan(**given, energy=energy, folder=folder)
    return plan, options[plan.engine]


def _options(engine: str, table: Mapping[str, Any]) -> Any:
    kind = OPTIONS[engine]
    known = [one.name for one in dataclasses.fields(kind)]
    if "sbatch" in known:  # whatever sbatch takes is its own to know
        table = {"sbatch": {k: v for k, v in table.items() if k not in known}} | {
            k: v for k, v in table.items() if k in known
        }
    _check_keys(table, known, f" in [{engine}]")
    return kind(**table)


def _check_keys(table: Mapping[str, Any], known: Collection[str], place: str) -> None:
    for name in table:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise ValueError(f"{name!r}{place} is not known; {hint}")
