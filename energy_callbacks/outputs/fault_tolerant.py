"""Wraps an output, so that its failures do not end the training.

The first failure is logged. The output is then closed, and not used afterwards.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping

from energy_callbacks.core.guard import pass_on_signals
from energy_callbacks.outputs.protocol import Output

logger = logging.getLogger("energy_callbacks")


class FaultTolerantOutput:
    """Passes scalars to another output until that output fails.

    Args:
        output: the output that receives the scalars.
        warning: message to log at the first failure; ``None`` for a default message.
    """

    def __init__(self, output: Output, warning: str | None = None) -> None:
        self._output: Output | None = output
        self._warning = warning or f"{output} failed and is left out from now on"

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """Write the scalars of one step, unless the output has failed before."""
        self._use(lambda output: output.write(scalars, step, unix_s))

    def close(self) -> None:
        """Close the output, unless it has failed before; a failure is logged."""
        self._use(lambda output: output.close())

    def _use(self, action: Callable[[Output], None]) -> None:
        output = self._output
        if output is None:
            return
        try:
            action(output)
        except Exception:
            pass_on_signals()
            self._output = None
            logger.warning("%s", self._warning, exc_info=True)
            with contextlib.suppress(Exception):
                output.close()
