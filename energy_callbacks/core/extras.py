"""Optional packages: the error for a missing one names the extra to install."""

from collections.abc import Iterator
from contextlib import contextmanager

from energy_callbacks.core.errors import MissingExtraError


@contextmanager
def requires(*packages: str, extra: str) -> Iterator[None]:
    """Replace the error for a missing package by one that says how to install it.

    Only the error for one of ``packages`` itself is replaced. An import that fails inside it, or
    inside this package, is a real error and passes through unchanged.

    Args:
        packages: top-level import names, such as ``"lightning"``.
        extra: the extra of this distribution that installs them.

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
