"""Optional packages: the error for a missing one names the extra to install."""

from types import TracebackType
from typing import Literal

from energy_callbacks.core.errors import MissingExtraError


class requires:  # noqa: N801 - reads as a statement: ``with requires("lightning", ...):``
    """Replace the error for a missing package by one that says how to install it.

    Only a missing one of ``packages`` itself is replaced: an import that fails inside it, or
    inside ours, is a real error and passes through unchanged.

    Args:
        packages: top-level import names, such as ``"lightning"``.
        extra: the extra of this distribution that brings it.

    Raises:
        MissingExtraError: on leaving the block, if one of them is not installed.
    """

    def __init__(self, *packages: str, extra: str) -> None:
        self._packages = packages
        self._extra = extra

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        if isinstance(error, ModuleNotFoundError) and error.name in self._packages:
            raise MissingExtraError(
                f"{error.name!r} is not installed; "
                f"run: pip install 'energy-callbacks[{self._extra}]'"
            ) from error
        return False
