"""Writes our figures to the trainer's loggers, and adds them to ``trainer.callback_metrics``.

A row contains the figures that are logged at one step.
"""

import time
from typing import Any

from energy_callbacks.accounting.metrics.row_schedule import RowSchedule
from energy_callbacks.core.guard import ForeignCalls
from energy_callbacks.dashboard import Dashboard
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.outputs.fault_tolerant import FaultTolerantOutput
from energy_callbacks.outputs.function import FunctionOutput
from energy_callbacks.report_process.pages import Pages
from energy_callbacks_lightning import metrics, tensorboard


class Rows:
    """The rows of one training; failures of loggers do not end it.

    Lightning's own calls of the loggers are not changed: an exception in them ends the training.

    Args:
        meter: the meter of the training.
        log_every_n_steps: the user's setting; ``None`` for the steps of the loss.

    Attributes:
        schedule: decides at which steps rows are written.
    """

    def __init__(self, meter: EnergyMeter, log_every_n_steps: int | None) -> None:
        self._meter = meter
        self.schedule = RowSchedule(meter.now_s, log_every_n_steps)
        self._dashboard = Dashboard(meter)
        self._outputs: dict[int, FaultTolerantOutput] = {}
        self._offered: metrics.Logged | None = None
        # Lightning may compute metrics of the model when it returns them.
        self._reads = ForeignCalls("energy cannot be added to callback_metrics", meter.now_s)

    def begin(self, trainer: Any) -> None:
        """Begin a training: offer figures to callbacks that monitor them."""
        self._dashboard = tensorboard.dashboard(self._meter, trainer)
        self._offered = self._reads.call(
            lambda: metrics.begin_offers(trainer, self._meter.config.tag_prefix)
        )

    def write(self, trainer: Any, step: int) -> None:
        """Write the newest figures at a step."""
        scalars = self._meter.log(step)
        if not scalars:
            return
        metrics.offer(self._offered, scalars)
        start_s = self._meter.now_s()
        if trainer.is_global_zero:
            for logger in trainer.loggers:  # callbacks of the user may have added some of them
                self._output(logger).write(scalars, step, time.time())
            self._dashboard.row(scalars, step)
        self.schedule.logged(self._meter.now_s() - start_s)

    def _output(self, logger: Any) -> FaultTolerantOutput:
        output = self._outputs.get(id(logger))  # a logger need not be hashable
        if output is None:
            name = type(logger).__name__
            write = FunctionOutput(lambda scalars, step: logger.log_metrics(scalars, step=step))
            output = FaultTolerantOutput(write, name, self._meter.now_s)
            self._outputs[id(logger)] = output
        return output

    def end(self, trainer: Any, step: int) -> Pages | None:
        """Write the last row; return what is written to TensorBoard together with the report."""
        self._offered = self._reads.call(lambda: metrics.offered(trainer))
        self.write(trainer, step)
        self._offered, self._outputs = None, {}
        if not trainer.is_global_zero:
            return None
        return self._dashboard.pages(lambda: metrics.last_values(trainer), step)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without the objects of a running training."""
        return vars(self) | {"_outputs": {}, "_offered": None}
