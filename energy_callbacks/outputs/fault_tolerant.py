"""Wraps an output so that its failure is logged once and the output skipped from then on."""

import contextlib
import logging
from collections.abc import Callable, Mapping

from energy_callbacks.core.guard import pass_on_signals
from energy_callbacks.outputs.protocol import Output

logger = logging.getLogger("energy_callbacks")


class FaultTolerantOutput:
    """Hands on to an output until that fails.

    Args:
        output: any other.
        words: of the warning; ``None`` names the output.
    """

    def __init__(self, output: Output, words: str | None = None) -> None:
        self._output: Output | None = output
        self._words = words or f"{output} failed and is left out from now on"

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """Write figures of one step, if all went well so far."""
        self._use(lambda output: output.write(scalars, step, unix_s))

    def close(self) -> None:
        """Close it; a failure is reported in the same way."""
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
            logger.warning("%s", self._words, exc_info=True)
            with contextlib.suppress(Exception):
                output.close()
