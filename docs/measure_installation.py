"""Prints the size of each dependency of this package in the environment of this Python.

``python docs/measure_installation.py`` writes the tables of ``docs/installation.md``. Run it in a
new environment in which only ``python -m pip install .`` was run.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, requires

NAME = "energy-callbacks"
# What an installation that only measures needs; tests/release/test_minimal_install.py.
MEASURING = ("numpy", "psutil", "nvidia-ml-py", "pydantic", "rich", "jinja2")


def direct() -> list[str]:
    """Return the names of the dependencies in ``pyproject.toml``, without extras."""
    return list(_names(requires(NAME) or ()))


@cache
def closure(name: str) -> frozenset[str]:
    """Return a package and everything that it requires, as far as it is installed."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in found and (installed := _find(one)) is not None:
            found.add(one)
            waiting += _names(installed.requires or ())
    return frozenset(found)


def size_mb(names: Iterable[str]) -> float:
    """Return the size of the files of packages, compiled modules included, in MB."""
    files = [file for name in names for file in distribution(name).files or ()]
    paths = {file.locate() for file in files}
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def only_through(name: str) -> frozenset[str]:
    """Return the packages that no other dependency of this package requires."""
    others = (closure(one) for one in direct() if one != name)
    return closure(name).difference(*others)


def _names(requirements: Iterable[str]) -> Iterator[str]:
    """Yield the normalised names of requirements that are not those of an extra."""
    for text in requirements:
        if "extra ==" not in text:
            yield re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", text, maxsplit=1)[0]).lower()


def _find(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _rows() -> Iterator[str]:
    yield "| dependency | MB | with what only it requires, MB | packages |"
    yield "|---|---:|---:|---:|"
    for name in sorted(direct(), key=lambda one: (-size_mb(only_through(one)), -size_mb([one]))):
        brings = only_through(name)
        yield f"| {name} | {size_mb([name]):.0f} | {size_mb(brings):.0f} | {len(brings)} |"
    yield ""
    yield "| installation | MB | packages |"
    yield "|---|---:|---:|"
    measuring = frozenset([NAME]).union(*map(closure, MEASURING))
    for label, names in (("default", closure(NAME)), ("only measures", measuring)):
        yield f"| {label} | {size_mb(names):.0f} | {len(names)} |"


if __name__ == "__main__":
    sys.stdout.writelines(f"{row}\n" for row in _rows())
