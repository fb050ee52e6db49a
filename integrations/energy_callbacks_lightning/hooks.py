"""Lightning's hooks as events of the meter.

::

    setup                               phase tuning, if a search comes first
    on_fit_start                        meter.start, phase setup
    on_sanity_check_start / _end          phase sanity_check
    on_train_start                      phase train
      on_train_epoch_start                batch_done: what follows is waiting
      precision_plugin.convert_input      data_ready
      on_train_batch_end                  batch_done, step, scalars to the loggers
      on_validation_start / _end          phase validation, its metrics
    on_train_epoch_end                    epoch, scalars
    on_train_epoch_start | on_train_end   the epoch's metrics
    trainer.save_checkpoint               window checkpoint
    on_train_end                        phase train ends
    teardown | on_exception             meter.stop, last scalars, report

``validate``, ``test`` and ``predict`` by themselves start at ``on_*_start`` and end at
``teardown``. No hook reads a sensor, and none waits for the device: metrics are read where
Lightning has just read them.
"""

from typing import Any

from energy_callbacks.dashboard import Dashboard
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_lightning import loop, monitors, tensorboard
from energy_callbacks_lightning.bases import version
from energy_callbacks_lightning.evaluation_hooks import EvaluationHooks
from energy_callbacks_lightning.method_patch import MethodPatch, TimedFetch, TimedSave
from energy_callbacks_lightning.metrics import LoggedMetrics


class EnergyHooks(EvaluationHooks):
    """Drives a meter; its settings and state belong to ``GpuEnergyCallback``.

    Args:
        meter: measures.
        steps: counts.
        log_every_n_steps: ``None`` follows the trainer's own setting.
    """

    def __init__(
        self, meter: EnergyMeter, steps: loop.StepCounter, log_every_n_steps: int | None
    ) -> None:
        super().__init__()
        self._meter = meter
        self._steps = steps
        self._saves = MethodPatch("save_checkpoint", TimedSave, meter)
        self._fetches = MethodPatch("convert_input", TimedFetch, meter)
        self._log_every_n_steps = log_every_n_steps
        self._state: dict[str, Any] = {}
        self._dashboard = Dashboard(meter)
        self._metrics = LoggedMetrics()

    def _start(self, trainer: Any) -> None:
        # Every rank asks for the folder, whatever became of its meter: Lightning broadcasts it.
        folder = loop.run_folder(trainer)
        self._meter.start(
            folder,
            state=self._state,
            process=loop.process(trainer, version),
            used_gpus=loop.used_gpus(trainer),
            say=loop.say,
        )
        self._state = {}

    def _stop(self, trainer: Any, error: BaseException | None = None) -> None:
        self._saves.end()
        self._fetches.end()
        if not self._meter.is_running:
            return
        self._meter.stop(error)
        self._log(trainer)
        if trainer.is_global_zero:
            summary = self._meter.save_report()
            if summary:
                loop.say(summary)
                self._dashboard.end(lambda: tensorboard.metrics(trainer), self._steps.logger_step)

    def _log(self, trainer: Any) -> None:
        """Scalars of the newest span into the user's own loggers, at the step of the loss."""
        scalars = self._meter.log(self._steps.logger_step)
        if not scalars:
            return
        monitors.offer(trainer, scalars)
        if trainer.is_global_zero:
            for logger in trainer.loggers:
                logger.log_metrics(scalars, step=self._steps.logger_step)
            self._dashboard.row(scalars, self._steps.logger_step)

    def _record_epoch(self, trainer: Any) -> None:
        """Metrics of the epoch that is over, if one is."""
        if trainer.is_global_zero:
            values, epoch = self._metrics.of_epoch(trainer)
            self._meter.record_metrics(values, step=trainer.global_step, epoch=epoch)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """A search for a batch size or a learning rate comes before ``on_fit_start``."""
        if loop.is_searching(trainer):
            self._start(trainer)
            self._meter.enter("tuning")

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Everything until the first batch is setup."""
        self._start(trainer)
        self._meter.leave("tuning")
        self._meter.enter("setup")

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Validation batches that Lightning tries before training."""
        self._meter.enter("sanity_check")

    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        """Back to setup."""
        self._meter.leave("sanity_check")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Setup ends, training begins."""
        self._meter.leave("setup")
        self._meter.enter("train")
        self._steps.begin(trainer)
        self._saves.begin(trainer)
        self._fetches.begin(trainer.precision_plugin)
        if (steps := loop.planned_steps(trainer)) is not None:
            self._meter.plan(steps)
        self._dashboard = tensorboard.dashboard(self._meter, trainer)
        if trainer.global_step:
            self._meter.resumed(trainer.global_step)
        monitors.begin(trainer)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """The loader's iterator is made next: from here on the loop waits for its first batch."""
        self._record_epoch(trainer)
        self._meter.mark("batch_done")

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """The data is there, if ``training_step`` did not ask for the loader itself."""
        self._meter.mark("data_ready")

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Work on a batch has been handed to the device; perhaps a step with it."""
        steps = self._steps.count(trainer, batch)
        for samples, tokens in steps:
            self._meter.step(samples, tokens)
        if not steps:
            self._meter.mark("batch_done")
        if steps and self._meter.is_over_budget():
            trainer.should_stop = True
        every = self._log_every_n_steps or trainer.log_every_n_steps
        is_due = every and self._steps.stepped_batches % every == 0
        if steps and (is_due or trainer.should_stop or trainer.fast_dev_run):
            self._log(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Lightning writes the epoch's metrics now, at the step of the last batch."""
        self._meter.epoch(trainer.current_epoch)
        self._metrics.end_epoch(trainer)
        self._log(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Training ends; what follows is idle."""
        self._record_epoch(trainer)
        self._meter.leave("train")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The last hook after an exception or Ctrl-C; no collective may run here."""
        self._stop(trainer, exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The last hook otherwise; the loggers are still open."""
        self._stop(trainer)
