"""Replaces import errors for missing packages by errors that name what to install."""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from energy_callbacks.core.errors import MissingExtraError

_NAME: Final = "energy-callbacks"


@contextmanager
def requires(*packages: str, extra: str = "") -> Iterator[None]:
    """Replace the import error for a missing package by an error that says how to install it.

    The error is replaced only if one of ``packages`` is missing. If one of them is installed but
    fails to import another module, the error of that import is raised unchanged.

    Args:
        packages: names under which the packages are imported, such as ``"lightning"``.
        extra: the extra of ``energy-callbacks`` that installs them; empty for dependencies, which
            only an installation with ``--no-deps`` lacks.

    Raises:
        MissingExtraError: if one of the packages is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in packages:
            raise
        raise missing(error.name or packages[0], extra=extra) from error


def check_installed(package: str, *, extra: str = "") -> None:
    """Raise the error of ``requires`` if a package is not installed, without importing it.

    Raises:
        MissingExtraError: if the package is not installed.
    """
    if not is_installed(package):
        raise missing(package, extra=extra)


def is_installed(package: str) -> bool:
    """Return whether a package can be imported."""
    return find_spec(package) is not None


def missing(package: str, *, extra: str = "") -> MissingExtraError:
    """Return the error for a package that is not installed; see ``requires``."""
    command = install_command(extra) if extra else dependency_command(package)
    return MissingExtraError(f"{package!r} is not installed; run: {command}")


def dependency_command(package: str) -> str:
    """Return the command that installs a dependency of this package.

    The metadata of this package has the versions that it works with. If it is imported from a
    checkout and is not installed, the command names no version.
    """
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import requires as requirements

    try:
        found = requirements(_NAME) or []
    except PackageNotFoundError:
        found = []
    named = (one for one in found if re.match(rf"{re.escape(package)}(?![\w.-])", one))
    return shlex.join(["pip", "install", next(named, package)])


def install_command(extra: str = "", *, upgrade: bool = False) -> str:
    """Return the command that installs this package again, from where it was installed.

    Args:
        extra: names of extras that the command also installs, such as ``"keras"``.
        upgrade: whether the command installs the newest version.
    """
    name = f"[{extra}]" if extra else ""
    pip = ["pip", "install", *(["--upgrade"] if upgrade else [])]
    origin = _origin()
    if "dir_info" in origin:
        folder = unquote(urlsplit(origin["url"]).path)
        editable = ["-e"] if origin["dir_info"].get("editable") else []
        command = shlex.join([*pip, *editable, folder + name])
        return f"{shlex.join(['git', '-C', folder, 'pull'])} && {command}" if upgrade else command
    if vcs := origin.get("vcs_info"):
        revision = None if upgrade else vcs.get("requested_revision")
        name += f" @ {vcs['vcs']}+{origin['url']}" + (f"@{revision}" if revision else "")
    elif origin:
        name += f" @ {origin['url']}"
    return shlex.join([*pip, _NAME + name])


def _origin() -> dict[str, Any]:
    """Return where this package was installed from; empty for a package index such as PyPI.

    The contents are those of ``direct_url.json`` (PEP 610). If the package is imported from a
    checkout and is not installed, this is the folder of the checkout.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        text = distribution(_NAME).read_text("direct_url.json")
    except PackageNotFoundError:
        checkout = Path(__file__).resolve().parents[2]
        is_checkout = (checkout / "pyproject.toml").is_file()
        return {"url": checkout.as_uri(), "dir_info": {}} if is_checkout else {}
    origin: dict[str, Any] = json.loads(text) if text else {}
    return origin
