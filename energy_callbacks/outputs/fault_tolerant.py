"""Wraps an output, so that its failures do not end the training."""

import contextlib
import time
from collections.abc import Callable, Mapping

from energy_callbacks.core.guard import ForeignCalls, pass_on_signals
from energy_callbacks.outputs.protocol import Output


class FaultTolerantOutput:
    """Passes scalars to another output, as long as that output does not fail.

    The first failure is logged. After a failure, the output is closed, and rows are left out for a
    minute or longer (see ``ForeignCalls``). Then the next row is written to it.

    Args:
        output: the output that receives the scalars.
        name: name of the output for the warning; ``None`` for the name of its class.
        now_s: returns the monotonic time, s.
    """

    def __init__(
        self, output: Output, name: str | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._output = output
        self._calls = ForeignCalls(
            f"energy metrics cannot be written to {name or type(output).__name__}; this is "
            "tried again at most once per minute",
            now_s,
        )

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """Write the scalars of one step, unless the output has failed recently."""
        self._calls.call(lambda: self._write(scalars, step, unix_s))

    def _write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        try:
            self._output.write(scalars, step, unix_s)
        except Exception:
            pass_on_signals()
            # The next row must not be appended to one of which only a part may have been written.
            with contextlib.suppress(Exception):
                self._output.close()
            raise

    def close(self) -> None:
        """Close the output, unless it has failed recently; a failure is logged."""
        self._calls.call(self._output.close)
