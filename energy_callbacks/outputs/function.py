"""Passes the scalars to a function of the user, such as ``wandb.log``."""

from collections.abc import Callable, Mapping


class FunctionOutput:
    """Calls ``function(scalars, step)``.

    Args:
        function: takes a dict of tags to values and the step.

    Raises:
        TypeError: if ``function`` cannot be called.
    """

    def __init__(self, function: Callable[[dict[str, float], int], object]) -> None:
        if not callable(function):
            raise TypeError(
                f"FunctionOutput needs a function of (scalars, step), got {function!r}; "
                "write FunctionOutput(lambda scalars, step: print(step, scalars))"
            )
        self._function = function

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:  # noqa: ARG002
        """Call the function."""
        self._function(dict(scalars), step)

    def close(self) -> None:
        """Nothing to release."""
