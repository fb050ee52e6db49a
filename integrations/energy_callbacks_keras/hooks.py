"""Keras' hooks as events of the meter.

::

    set_model                           to the first place of the list
    on_train_begin                      which call this is
      on_epoch_begin                    the first one: meter.start, phase train
        on_train_batch_begin              the batches before it are done: steps
        on_test_begin / _end              phase validation
      on_epoch_end                      epoch, samples, scalars to TensorBoard and into logs
    on_train_end                        meter.stop, last scalars, report

``evaluate`` and ``predict`` by themselves are an attempt from ``on_*_begin`` to ``on_*_end``. A
call that raises fires no more hooks: the meter looks after it. There is no hook at the end of a
batch, because one would make Keras wait for the device after each; see ``CallbackList``.
"""

import logging
from pathlib import Path
from typing import Any

import keras

from energy_callbacks.accounting import journal
from energy_callbacks.accounting.launch import Process, default_folder
from energy_callbacks.accounting.scalars import expected_tags
from energy_callbacks.calls import OngoingCall
from energy_callbacks.guard import harmless
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_keras import checkpoints, devices
from energy_callbacks_keras.counts import Data
from energy_callbacks_keras.loop import StepCounter
from energy_callbacks_keras.rows import Rows
from energy_callbacks_keras.siblings import Logs, Siblings

logger = logging.getLogger("energy_callbacks")


class EnergyHooks(keras.callbacks.Callback):
    """Drives a meter; its settings belong to ``GpuEnergyCallback``.

    Args:
        meter: measures.
        steps: counts.
        batches_to_a_row: ``None`` for a row an epoch.
    """

    def __init__(
        self, meter: EnergyMeter, steps: StepCounter, batches_to_a_row: int | None
    ) -> None:
        super().__init__()
        self._meter = meter
        self._steps = steps
        self._batches_to_a_row = batches_to_a_row
        self._forget_call()

    def _forget_call(self) -> None:
        self._owner: str | None = None
        self._call: OngoingCall | None = None
        self._siblings: Siblings | None = None
        self._process = Process()
        self._rows: Rows | None = None
        self._first_epoch = 0
        self._steps.begin(Data())

    def __getstate__(self) -> dict[str, Any]:
        """A copy is in no call."""
        idle = {"_owner": None, "_call": None, "_siblings": None, "_rows": None, "_model": None}
        return self.__dict__ | idle

    def abandon(self, message: str) -> None:
        """Measure no more and say why, with the exception that is being handled."""
        self._meter.abandon(message)

    def set_model(self, model: Any) -> None:
        """Keras makes its list of the callbacks of a call."""
        super().set_model(model)
        Siblings(self).lead()

    def _begin(self, owner: str) -> None:
        """A call begins that the meter belongs to: ``fit``, ``evaluate`` or ``predict``."""
        self._forget_call()
        self._owner = owner
        self._call = OngoingCall.find(owner, package="keras")
        self._siblings = Siblings(self)
        self._siblings.lead()

    @property
    def _is_inside(self) -> bool:
        """Whether such a call is under way; one that raised has told nobody."""
        return self._owner is not None and (self._call is None or self._call.is_under_way())

    def _start(self, state: dict[str, Any] | None = None) -> tuple[int, ...] | None:
        """Start the meter, perhaps with its state from a backup; returns the GPUs in use."""
        self._process = devices.process(self.model)
        if self._meter.config.has_budget:
            devices.check_budget(self._process)
        used_gpus = devices.used_gpus(self.model)
        self._meter.start(
            self._run_folder(),
            state=state,
            process=self._process,
            used_gpus=used_gpus,
            call=self._call,
            say=self._say,
        )
        return used_gpus

    def _run_folder(self) -> Path:
        """Beside the user's logs, unless they lie in a bucket; else where this run was before."""
        board = self._siblings.tensorboard if self._siblings else None
        log_dir = "" if board is None or "://" in board.log_dir else board.log_dir
        beside = Path(log_dir) / "energy" if log_dir else self._meter.run_folder
        otherwise = beside or default_folder(self._process) / "energy"
        return self._meter.config.run_folder or otherwise

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """``fit``, or a loop of the user's; others may still restore a checkpoint."""
        self._begin("fit")

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """The first epoch starts the meter: only now it is known whether a run goes on."""
        if self._owner == "fit" and self._rows is None:
            state = self._state(epoch)
            used_gpus = self._start(state)
            self._first_epoch = epoch
            self._start_training(used_gpus, is_resuming=bool(epoch or state))
        self._begin_epoch(epoch)

    def _state(self, epoch: int) -> dict[str, Any]:
        """Of the run that goes on: beside its backup, else the newest one in the run folder."""
        state = checkpoints.kept(self._siblings.all) if self._siblings else {}
        if epoch and not state:
            return {"run_id": journal.newest_run_id(self._run_folder())}
        return state

    @harmless
    def _start_training(self, used_gpus: tuple[int, ...] | None, *, is_resuming: bool) -> None:
        folder = self._meter.run_folder
        if not self._meter.is_running or folder is None or self._siblings is None:
            return
        tags = expected_tags(
            gpu=bool(used_gpus), tokens=self._steps.tokens_per_sample is not None, waits=False
        )
        is_alone = self._process.world_size == 1
        data = Data(
            model=self.model,
            call=self._call,
            steps=(self.params or {}).get("steps"),
            processes=self._process.world_size,
        )
        logged = tags if is_alone else ()
        every = self._batches_to_a_row
        self._rows = Rows(self._siblings, folder, logged, every, meter=self._meter, data=data)
        self._meter.enter("train")
        done_before = self._steps.begin(data)
        if is_resuming and done_before:
            self._meter.resumed(done_before)

    @harmless
    def _begin_epoch(self, epoch: int) -> None:
        if self._rows is None or self._siblings is None:
            return
        self._rows.begin_epoch(epoch)
        self._steps.begin_epoch()
        if self._siblings.lead():
            self._siblings.draw_curtains(self._meter)

    @harmless
    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """The batches before this one are done. No ``self.model`` here: JAX would copy all."""
        if self._rows is None or not self._meter.is_running:
            return
        self._steps.batch_begins(batch)
        if self._rows.is_due:
            self._log()
        self._rows.begin_execution()
        if self._process.world_size == 1 and self._meter.is_over_budget():
            self._model.stop_training = True

    def _log(self) -> dict[str, float]:
        """Scalars of the newest span into TensorBoard, by the first process."""
        if self._rows is None:
            return {}
        scalars = self._meter.log(self._rows.step)
        if self._process.rank == 0:
            self._rows.write(scalars)
        return scalars

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """The device has done all of the epoch; what is added to ``logs`` reaches all others."""
        if self._owner == "fit" and self._meter.is_over_budget(devices.add):
            self._model.stop_training = True
        if self._rows is not None:
            self._rows.offer(logs, self._end_epoch(epoch, logs) or {})

    @harmless
    def _end_epoch(self, epoch: int, logs: Logs | None) -> dict[str, float]:
        if self._rows is None or not self._meter.is_running:
            return {}
        self._steps.settle()
        epochs = (self.params or {}).get("epochs")
        if epoch == self._first_epoch and isinstance(epochs, int):
            self._meter.plan(self._steps.done * (epochs - epoch))
        self._meter.epoch(epoch)
        if self._process.rank == 0:
            self._rows.write_loss(logs)
        scalars = self._log()
        if self._process.rank == 0 and self._siblings is not None:
            checkpoints.keep(self._siblings.all, self._meter.state())
        return scalars

    @harmless
    def on_train_end(self, logs: Logs | None = None) -> None:
        """TensorBoard's writer is still open, because ours is the first in the list."""
        if self._siblings is not None:
            self._siblings.remove_curtains()
        self._meter.leave("train")
        self._finish("fit")

    @harmless
    def _finish(self, owner: str) -> None:
        """The call ends: last scalars, report, one line."""
        if self._owner != owner:
            return
        if self._meter.is_running:
            self._meter.stop()
            self._log()
            self._save_report()
        if self._rows is not None:
            self._rows.close()
        self._forget_call()

    def _save_report(self) -> None:
        summary = self._meter.save_report() if self._process.rank == 0 else None
        if summary:
            self._say(summary)
            if self._rows is not None:
                self._rows.end()

    def _say(self, summary: str) -> None:
        """As Keras' own progress speaks, and as quiet as that with ``verbose=0``."""
        is_shown = keras.config.is_interactive_logging_enabled()
        if is_shown and (self.params or {}).get("verbose", 1):
            print(summary)  # noqa: T201 - see above
        else:
            logger.info("%s", summary)

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Validation inside ``fit``, or ``evaluate`` by itself."""
        if self._is_inside:
            self._settle()
        else:
            self._begin("evaluate")
            self._start()
        self._meter.enter("validation")

    @harmless
    def _settle(self) -> None:
        """What was counted in training is forgotten next."""
        if self._rows is not None and self._meter.is_running:
            self._steps.settle()

    @harmless
    def on_test_end(self, logs: Logs | None = None) -> None:
        """Back to what was before."""
        self._meter.leave("validation")
        self._finish_behind_all("evaluate")

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        """``predict``, by itself or called by another callback."""
        if not self._is_inside:
            self._begin("predict")
            self._start()
        self._meter.enter("predict")

    @harmless
    def on_predict_end(self, logs: Logs | None = None) -> None:
        """See ``on_predict_begin``."""
        self._meter.leave("predict")
        self._finish_behind_all("predict")

    def _finish_behind_all(self, owner: str) -> None:
        """Let the progress bar and all others have their last word before ours."""
        if self._owner == owner and self._siblings is not None and self._siblings.all:
            self._siblings.add_rear(lambda: self._finish(owner))
        else:
            self._finish(owner)
