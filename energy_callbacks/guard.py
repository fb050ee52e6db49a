"""A bug of ours becomes one warning and the end of measuring, never of the training."""

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class Abandonable(Protocol):
    """What can give up measuring."""

    def abandon(self, message: str) -> None:
        """Stop measuring, and say so once."""
        ...


Owner = TypeVar("Owner", bound=Abandonable)
P = ParamSpec("P")
R = TypeVar("R")


def give_up(owner: Abandonable, method: str) -> None:
    """Let an owner give up because of the exception that is being handled."""
    owner.abandon(f"{type(owner).__name__}.{method} failed; measuring ends here")


def harmless(
    method: Callable[Concatenate[Owner, P], R],
) -> Callable[Concatenate[Owner, P], R | None]:
    """Let a method return ``None`` and its owner give up, where it would raise."""

    @functools.wraps(method)
    def guarded(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return method(self, *args, **kwargs)
        except Exception:  # noqa: BLE001 - our bug must not become the training's
            give_up(self, method.__name__)
            return None

    return guarded
