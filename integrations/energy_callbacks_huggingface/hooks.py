"""Translates the Trainer's events into calls of the meter.

::

    on_init_end                       moves one energy callback to the front of the list
    on_train_begin                    meter.start, phase train; if auto_find_batch_size restarts the
                                        training: window tuning, from the last step or window
      on_epoch_begin                    mark batch_done: the loop waits for data
      on_step_begin                     mark data_ready
      on_substep_end                    counts a micro-batch
      on_step_end                       meter.step
      on_log                            records metrics; adds figures to the row with the loss, at
                                          most once per second or as ``log_every_n_steps`` says
      on_prediction_step                notes when an evaluation or prediction began
      on_evaluate | on_predict          window validation | predict, from the noted time
      on_save                           window checkpoint, from the previous event
      on_epoch_end                      meter.epoch
    on_log of the last row            phase train ends, meter._end_call, last figures

Calls of ``evaluate`` and ``predict`` outside ``train`` are measured from the first
``on_prediction_step``. The Trainer calls no hook after an exception, so the meter watches whether
the user's call has ended. Between ``meter.start`` and ``meter._end_call`` no hook reads a sensor or
synchronizes the device.
"""

import math
from typing import Any

from energy_callbacks.core.active_call import ActiveCall, find_callback_list
from energy_callbacks.core.guard import harmless
from energy_callbacks_huggingface import loop
from energy_callbacks_huggingface.callback_list import OtherTrainerCallbacks
from energy_callbacks_huggingface.session import Session
from energy_callbacks_huggingface.step_hooks import StepHooks

Logs = dict[str, Any]


class EnergyHooks(StepHooks):
    """Calls a meter from the Trainer's hooks; its subclass ``GpuEnergyCallback`` adds settings."""

    @harmless
    def on_init_end(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Move this callback to the front, unless another energy callback has precedence."""
        callbacks = find_callback_list(self) or []
        if not self._prior(callbacks):
            OtherTrainerCallbacks(self, callbacks, None).take_place()

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """Start measuring, or note that the same call restarts training with smaller batches."""
        session = self._running()
        if session is not None and session.phase == "train" and session.call is not None:
            session.tuned()
        else:
            call = ActiveCall.find("train", package="transformers")
            session = self._begin("train", call, args, state, model)
        if session is not None:
            self._begin_training(session, args, state, model)

    @harmless
    def _begin_training(self, session: Session, args: Any, state: Any, model: Any) -> None:
        session.others.take_place()
        session.begin_training(args, state, model, self._log_every_n_steps)
        self._meter.plan(state.max_steps - state.global_step)
        self._keep(state)

    @harmless
    def on_epoch_begin(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Mark that the loop waits for data: the Trainer creates the loader's iterator next."""
        if (session := self._session) is not None:
            session.begin_epoch()
            session.wait_for_data()

    @harmless
    def on_epoch_end(
        self, /, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any
    ) -> None:
        """End an epoch, which may be incomplete."""
        if (session := self._session) is not None:
            self._meter.epoch(max(math.ceil(state.epoch or 0.0) - 1, 0))
            session.end_epoch(args, state, train_dataloader)
            session.others.call_last()

    @harmless
    def on_log(
        self, /, args: Any, state: Any, control: Any, logs: Logs | None = None, **kwargs: Any
    ) -> None:
        """Record metrics, and add our figures to rows of training. The last row ends measuring.

        This hook never calls the Trainer's ``log``, and never requests a log.
        """
        session = self._session
        if session is None or logs is None:
            return
        if loop.is_final_row(logs):
            # Now, because TensorBoard's writer may be closed in ``on_train_end``, and because the
            # Trainer may load the best checkpoint next, which may fail.
            with session.ending() as ending:
                self._write(session, logs, state, is_final=True)
                if state.is_world_process_zero:
                    ending.pages = session.pages(state)
        else:
            if state.is_world_process_zero:
                values, epoch = loop.metrics(logs), state.epoch
                self._meter.record_metrics(values, step=state.global_step, epoch=epoch)
            self._write(session, logs, state, is_final=False)
            session.begin_window()
        session.others.call_last()

    def _write(self, session: Session, logs: Logs, state: Any, *, is_final: bool) -> None:
        is_due = is_final or (loop.is_training_row(logs) and session.is_row_due(state))
        scalars = self._meter.log(state.global_step) if is_due else {}
        if state.is_world_process_zero:
            # The last row describes the whole training, so totals are added to it. There are none
            # if the user ends the meter later.
            in_logs = (is_final and self._meter.totals()) or scalars
            session.write(logs, scalars, in_logs, state)

    def on_prediction_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """Note a batch of an evaluation or prediction. There is no hook for their start."""
        session = self._running() or self._begin_alone(args, state, model)
        if session is not None:
            session.predict()

    @harmless
    def on_evaluate(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End an evaluation."""
        self._predicted("validation", state)

    @harmless
    def on_predict(
        self, /, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any
    ) -> None:
        """End a prediction."""
        self._predicted("predict", state)

    def _predicted(self, name: str, state: Any) -> None:
        session = self._running()
        if session is not None and session.phase == "train":
            session.predicted(name)
            self._keep(state)
            session.others.call_last()
        elif session is not None:
            self._end(session)

    @harmless
    def on_save(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Assign the time since the last event to the phase ``checkpoint``."""
        if (session := self._session) is not None:
            session.saved()
            session.others.call_last()

    @harmless
    def on_train_end(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the session.

        If there was no last row, as in a pruned trial of a hyperparameter search, measuring ends
        here.
        """
        if (session := self._session) is not None:
            self._end(session)
