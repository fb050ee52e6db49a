"""Passes the scalars to a function that the user gives, such as ``wandb.log``."""

from collections.abc import Callable, Mapping


class FunctionOutput:
    """Calls ``function(scalars, step)`` at each call of ``write``.

    Args:
        function: the user's function; its arguments are a dict of tags to values, and the number of
            the step.

    Raises:
        TypeError: if ``function`` is not callable.
    """

    def __init__(self, function: Callable[[dict[str, float], int], object]) -> None:
        if not callable(function):
            raise TypeError(
                f"FunctionOutput needs a function of (scalars, step), got {function!r}; "
                "write FunctionOutput(lambda scalars, step: print(step, scalars))"
            )
        self._function = function

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:  # noqa: ARG002
        """Call the function with the scalars of one step."""
        self._function(dict(scalars), step)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
