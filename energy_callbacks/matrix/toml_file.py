"""Reads the settings of a matrix from a TOML file and checks every key and value."""

import difflib
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from energy_callbacks.matrix.engines import ENGINES
from energy_callbacks.matrix.engines.engine import Engine
from energy_callbacks.matrix.plan import MatrixPlan

_ENERGY: Final = ("country", "region", "pue", "price_per_kwh", "currency")
_TABLES: Final = ("parameters", "env", "baseline", *ENGINES)


def load(path: Path, engine: str | None = None) -> tuple[MatrixPlan, Engine]:
    """Read a TOML file; return the plan and the engine that runs it.

    Args:
        path: the TOML file; the command runs in the file's folder.
        engine: name of the engine; ``None`` uses the engine that the file names.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if its content is invalid; the message begins with the path.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        if engine is not None:
            content["engine"] = engine
        return parsed(content, path.resolve().parent)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def parsed(content: Mapping[str, Any], folder: Path) -> tuple[MatrixPlan, Engine]:
    """Check the content of a TOML file; return the plan and the engine that it describes.

    Args:
        content: the parsed file.
        folder: working directory of the command.

    Raises:
        ValueError: if a key is unknown or missing, or a value is invalid.
        TypeError: if a value has the wrong type.
    """
    others = ("energy", "folder", *_TABLES)
    plain = [one.name for one in fields(MatrixPlan) if one.name not in others]
    _check_keys(content, (*plain, *_ENERGY, *_TABLES), "")
    for name in _TABLES:
        if not isinstance(content.get(name, {}), dict):
            raise TypeError(f"{name} must be a table, got {content[name]!r}; write [{name}]")
    for name in ("name", "command", "parameters"):
        if name not in content:
            raise ValueError(f"{name} is missing; a matrix needs name, command and [parameters]")
    engines = {name: _engine(name, content.get(name, {})) for name in ENGINES}
    energy = {name: content[name] for name in _ENERGY if name in content}
    given = {name: content[name] for name in content if name not in (*ENGINES, *_ENERGY)}
    plan = MatrixPlan(**given, energy=energy, folder=folder)
    return plan, engines[plan.engine]


def _engine(name: str, table: Mapping[str, Any]) -> Engine:
    kind = ENGINES[name]
    known = [one.name for one in fields(kind)]
    if "sbatch" in known:  # other keys are options of sbatch
        sbatch = {key: value for key, value in table.items() if key not in known}
        table = {"sbatch": sbatch} | {key: table[key] for key in table if key in known}
    _check_keys(table, known, f" in [{name}]")
    engine: Engine = kind(**table)
    return engine


def _check_keys(table: Mapping[str, Any], known: Collection[str], place: str) -> None:
    for name in table:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else (f"known names are {', '.join(known)}")
            raise ValueError(f"{name!r}{place} is not known; {hint}")
