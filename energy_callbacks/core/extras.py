"""Replaces import errors for missing optional packages by errors that name the extra to install."""

from collections.abc import Iterator
from contextlib import contextmanager

from energy_callbacks.core.errors import MissingExtraError


@contextmanager
def requires(*packages: str, extra: str) -> Iterator[None]:
    """Replace the import error for a missing package by an error that says how to install it.

    The error is replaced only if one of ``packages`` is missing. If one of them is installed but
    fails to import another module, the error of that import is raised unchanged.

    Args:
        packages: names under which the packages are imported, such as ``"lightning"``.
        extra: the extra of ``energy-callbacks`` that installs them.

    Raises:
        MissingExtraError: if one of the packages is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in packages:
            raise
        raise MissingExtraError(
            f"{error.name!r} is not installed; run: pip install 'energy-callbacks[{extra}]'"
        ) from error
