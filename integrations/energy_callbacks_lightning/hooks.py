"""Translates Lightning's hooks into calls of the meter.

::

    setup                               if fit first runs a search: meter.start, phase tuning
    on_fit_start                        meter.start (if not running), phase setup
    on_sanity_check_start / _end          phase sanity_check
    on_train_start                      phase train
      epoch loop waits for data           mark batch_done, data_ready (method_patch)
      on_train_batch_end                  step (step_counter), scalars to the loggers
      on_validation_start / _end          phase validation, records the metrics of the validation
    on_train_epoch_end                    meter.epoch, scalars to the loggers
    on_train_epoch_start | on_train_end   records the metrics of the epoch that has ended
    trainer.save_checkpoint               window checkpoint
    on_train_end                        phase train ends
    teardown | on_exception             meter._end_call, last scalars

Calls of ``validate``, ``test`` and ``predict`` are measured from ``on_*_start`` to ``teardown``.
No hook between start and end reads a sensor or waits for the device.

Only the start of a meter raises exceptions, such as ``PermissionError`` for its folder. Any other
error ends measuring with a warning.
"""

from typing import TYPE_CHECKING, Any

from energy_callbacks.core.guard import harmless
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_lightning import loop
from energy_callbacks_lightning.bases import bases
from energy_callbacks_lightning.hook_shortcuts import HookShortcuts
from energy_callbacks_lightning.method_patch import TrainerPatches
from energy_callbacks_lightning.metrics import LoggedMetrics
from energy_callbacks_lightning.rows import Rows
from energy_callbacks_lightning.step_counter import LightningStepCounter

if TYPE_CHECKING:
    from lightning.pytorch import Callback as Base
else:
    Base = type("Base", bases, {})


class EnergyHooks(Base):
    """Calls a meter from Lightning's hooks; its subclass ``GpuEnergyCallback`` adds settings."""

    def __init__(
        self, meter: EnergyMeter, steps: LightningStepCounter, log_every_n_steps: int | None
    ) -> None:
        super().__init__()
        self._meter = meter
        self._steps = steps
        self._patches = TrainerPatches(meter)
        self._shortcuts = HookShortcuts(EnergyHooks)
        self._rows = Rows(meter, log_every_n_steps)
        self._loss_every = 1
        self._first_step = 0
        self._state: dict[str, Any] = {}
        self._metrics = LoggedMetrics(meter.now_s)

    def _abandon(self, message: str) -> None:
        """Stop measuring, and log the message with the current exception."""
        self._meter._abandon(message)

    def _start(self, trainer: Any) -> None:
        """Begin an attempt, unless one is running."""
        loop.start(self._meter, trainer, self._state)
        self._state = {}

    def _stop(self, trainer: Any, error: BaseException | None = None) -> None:
        self._patches.end()
        self._shortcuts.end(self)
        if not self._meter.is_running:
            return
        with self._meter._end_call(error) as ending:
            ending.pages = self._rows.end(trainer, self._steps.logger_step)

    def _record_epoch(self, trainer: Any) -> None:
        """Record the metrics of the epoch that has ended; do nothing if none has ended."""
        if trainer.is_global_zero:
            values, epoch = self._metrics.of_epoch(trainer)
            self._meter.record_metrics(values, step=trainer.global_step, epoch=epoch)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Start measuring if ``fit`` begins with a search; see ``loop.is_searching``."""
        if loop.is_searching(trainer):
            self._start(trainer)
            self._meter.enter("tuning")

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Enter the phase ``setup``, which lasts until ``on_train_start``."""
        self._start(trainer)
        self._meter.leave("tuning")
        self._meter.enter("setup")

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Enter the phase ``sanity_check``, in which Lightning runs some validation batches."""
        self._meter.enter("sanity_check")

    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        """Return to the phase ``setup``."""
        self._meter.leave("sanity_check")

    @harmless
    def on_train_start(self, /, trainer: Any, pl_module: Any) -> None:
        """Enter the phase ``train``."""
        self._meter.leave("setup")
        self._meter.enter("train")
        self._steps.begin(trainer, self)
        self._shortcuts.begin(self, self._steps.on_train_batch_end)
        self._patches.begin(trainer)
        self._first_step = trainer.global_step
        loop.plan(self._meter, trainer, self._first_step, is_epoch_start=False)
        if trainer.global_step:
            self._meter.resumed(trainer.global_step)
        self._rows.begin(trainer)

    @harmless
    def on_train_epoch_start(self, /, trainer: Any, pl_module: Any) -> None:
        """Record metrics of the epoch before, plan steps, and decide when rows may be due."""
        self._record_epoch(trainer)
        loop.plan(self._meter, trainer, self._first_step, is_epoch_start=True)
        self._loss_every = loop.loss_every(trainer)
        rows = self._rows.schedule
        if self._meter.config.has_budget:
            self._steps.begin_epoch(trainer, 1)
        else:
            self._steps.begin_epoch(trainer, rows.every_n_steps or self._loss_every, rows)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report the optimizer steps that ended with the batch; the device may still run them."""
        self._steps.on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def act(self, trainer: Any) -> None:
        """Write a row if one is due, and end the training if the budget is used up."""
        if self._meter.is_over_budget():
            trainer.should_stop = True
        step = self._steps.stepped_batches
        if self._rows.schedule.is_due(step, logs_loss=step % self._loss_every == 0):
            self._rows.write(trainer, self._steps.logger_step)
            self._steps.check_sizes()

    @harmless
    def on_train_epoch_end(self, /, trainer: Any, pl_module: Any) -> None:
        """End an epoch, and log figures at the step of its last batch, as Lightning does."""
        self._meter.epoch(trainer.current_epoch)
        self._metrics.end_epoch(trainer)
        self._rows.write(trainer, self._steps.logger_step)

    @harmless
    def on_train_end(self, /, trainer: Any, pl_module: Any) -> None:
        """Record the metrics of the last epoch, and leave the phase ``train``."""
        self._record_epoch(trainer)
        self._meter.leave("train")

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Enter the phase ``validation``, except in a sanity check; start the meter if needed."""
        if trainer.state.fn != "fit":
            self._start(trainer)
        if not trainer.sanity_checking:
            self._meter.enter("validation")
            self._metrics.begin_validation(trainer)

    @harmless
    def on_validation_end(self, /, trainer: Any, pl_module: Any) -> None:
        """Return to the previous phase, and record the metrics of the validation."""
        self._meter.leave("validation")
        if trainer.is_global_zero and not trainer.sanity_checking:
            values, epoch = self._metrics.of_validation(trainer), trainer.current_epoch
            self._meter.record_metrics(values, step=trainer.global_step, epoch=epoch)

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Start measuring ``trainer.test``, in the phase ``test``."""
        self._start(trainer)
        self._meter.enter("test")

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the phase ``test``."""
        self._meter.leave("test")

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """Start measuring ``trainer.predict``, in the phase ``predict``."""
        self._start(trainer)
        self._meter.enter("predict")

    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the phase ``predict``."""
        self._meter.leave("predict")

    @harmless
    def on_exception(self, /, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stop measuring after an exception or Ctrl-C, without any collective operation."""
        self._stop(trainer, exception)

    @harmless
    def teardown(self, /, trainer: Any, pl_module: Any, stage: str) -> None:
        """Stop measuring at the end of a call such as ``fit``. The loggers are still open then."""
        self._stop(trainer)
