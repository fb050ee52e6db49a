"""Translates Keras' hooks into calls of the meter.

::

    set_model                           moves the callback to the front of the list
    on_train_begin                      finds the call of fit on the stack
      on_epoch_begin                    in the first epoch: meter.start, phase train
        on_train_batch_begin              meter.step for the batches before this one
        a loader from timed()             marks batch_done and data_ready
        on_test_begin / _end              phase validation
      on_epoch_end                      meter.epoch, metrics, scalars to TensorBoard and logs
    on_train_end                        meter._end_call, last scalars

Calls of ``evaluate`` and ``predict`` outside ``fit`` are attempts of their own, from ``on_*_begin``
to ``on_*_end``. After an exception Keras calls no more hooks, so the meter watches whether the call
has ended. Our callback has no hook at the end of a batch, because with such a hook Keras would wait
for the device after each batch; see Keras' ``CallbackList``.
"""

from energy_callbacks.accounting.step_marks import STEP
from energy_callbacks.core.guard import give_up, harmless
from energy_callbacks_keras import checkpoints, devices
from energy_callbacks_keras.call import EnergyCalls
from energy_callbacks_keras.callback_list import Logs


class EnergyHooks(EnergyCalls):
    """Calls a meter from Keras' hooks; its subclass ``GpuEnergyCallback`` adds settings."""

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Find the call of ``fit``. There is none in a user's own training loop.

        The meter starts later, because other callbacks may still restore a checkpoint.
        """
        self._begin("fit")

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Start the meter in the first epoch: only now is it known whether a run is resumed."""
        if self._owner == "fit" and self._rows is None:
            state = self._state(epoch)
            used_gpus = self._start(state)
            self._first_epoch = epoch
            self._start_training(used_gpus, is_resuming=bool(epoch or state))
        self._begin_epoch(epoch)

    @harmless
    def _begin_epoch(self, epoch: int) -> None:
        if self._rows is None or self._others is None:
            return
        self._rows.epoch = epoch
        self._steps.begin_epoch()
        self._waits.begin(self._call)
        if self._others.lead():
            self._others.add_timers(self._meter)

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Count the batches before batch ``batch``, write a row if one is due, check the budget.

        The hook is not decorated, and without a budget, it calls no Python function at most of the
        batches: in a training, each such call takes about a microsecond. It reads ``self._model``,
        because with JAX, reading ``self.model`` copies the whole training state.
        """
        rows = self._rows
        if rows is None:
            return
        try:
            steps = self._steps
            if batch == steps.next_batch:
                steps.next_batch = batch + 1
                marks = steps.marks
                marks.append((STEP, marks.now_s(), steps.samples, steps.tokens, None))
            else:
                steps.batch_begins(batch)
            every = rows.batches_per_row
            is_possible = every is not None and not rows.executions % every
            if is_possible and rows.is_due and self._meter.is_running:
                self._log()
            rows.executions += 1
            if self._checks_budget and self._meter.is_over_budget():
                self._model.stop_training = True
        except Exception:  # noqa: BLE001 - a bug here must not stop the training
            give_up(self, "on_train_batch_begin")

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Record the epoch and add figures to ``logs``; the device has completed the epoch."""
        self._waits.end()
        if self._owner == "fit" and self._meter.is_over_budget(devices.add):
            self._model.stop_training = True
        if self._rows is not None:
            self._rows.offer(logs, self._end_epoch(epoch, logs) or {})
            self._filter()

    @harmless
    def _filter(self) -> None:
        """Hide figures from some callbacks while they receive this event."""
        if self._others is not None and self._others.lead():
            self._others.add_filters(self._meter)
            self._others.call_last(self._others.remove_filters)

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
            self._meter.record_metrics(logs or {}, step=self._steps.done, epoch=epoch)
        scalars = self._log()
        if self._process.rank == 0 and self._others is not None:
            checkpoints.keep(self._others.all, self._meter.state())
        return scalars

    @harmless
    def on_train_end(self, logs: Logs | None = None) -> None:
        """End ``fit``. TensorBoard's writer is still open, because this callback comes first."""
        if self._others is not None:
            self._others.remove_all()
        self._meter.leave("train")
        self._finish("fit")

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Enter the phase ``validation``; if no measured call is running, start the meter first."""
        self._waits.end()
        if self._is_inside:
            self._settle()
        else:
            self._begin("evaluate")
            self._start()
        self._meter.enter("validation")

    @harmless
    def _settle(self) -> None:
        """Count the epoch's samples before the evaluation resets the metric that counts them."""
        if self._rows is not None and self._meter.is_running:
            self._steps.settle()

    @harmless
    def on_test_end(self, logs: Logs | None = None) -> None:
        """Leave the phase ``validation``, and end the measured call if it is ``evaluate``."""
        self._end_evaluation("validation", "evaluate")

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        """Enter the phase ``predict``; if no measured call is running, start the meter first."""
        self._waits.end()
        if not self._is_inside:
            self._begin("predict")
            self._start()
        self._meter.enter("predict")

    @harmless
    def on_predict_end(self, logs: Logs | None = None) -> None:
        """Leave the phase ``predict``, and end the measured call if it is ``predict``."""
        self._end_evaluation("predict", "predict")

    def _end_evaluation(self, phase: str, owner: str) -> None:
        self._meter.leave(phase)
        if self._rows is not None:
            self._waits.begin(self._call)
        if self._owner == owner:
            self._finish_last(owner)
