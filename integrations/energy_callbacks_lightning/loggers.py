"""Writes rows of figures to the loggers of a trainer, whose failures do not end the training."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from energy_callbacks.outputs.fault_tolerant import FaultTolerantOutput


class LoggerOutputs:
    """Writes rows to the loggers of one training.

    Lightning's own calls of the loggers are not changed: an exception in them ends the training.

    Args:
        now_s: returns the monotonic time, s.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._outputs: dict[int, FaultTolerantOutput] = {}

    def write(self, loggers: Iterable[Any], scalars: Mapping[str, float], step: int) -> None:
        """Write a row to these loggers; callbacks of the user may have added some of them."""
        for logger in loggers:
            self._output(logger).write(scalars, step, time.time())

    def _output(self, logger: Any) -> FaultTolerantOutput:
        output = self._outputs.get(id(logger))  # a logger need not be hashable
        if output is None:
            name = type(logger).__name__
            output = FaultTolerantOutput(_LoggerOutput(logger), name, self._now_s)
            self._outputs[id(logger)] = output
        return output

    def forget(self) -> None:
        """Forget the loggers and their failures, when the training has ended."""
        self._outputs = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without the loggers of a running training."""
        return vars(self) | {"_outputs": {}}


class _LoggerOutput:
    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        self._logger.log_metrics(scalars, step=step)

    def close(self) -> None:
        """Do nothing: Lightning closes the logger."""
