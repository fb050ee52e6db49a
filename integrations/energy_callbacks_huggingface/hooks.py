"""The Trainer's events as events of the meter.

::

    on_init_end                       first place in the list of callbacks
    on_train_begin                    meter.start, phase train
                                        (again in the same call: auto_find_batch_size; tuning)
      on_epoch_begin                    batch_done: what follows is waiting
      on_step_begin                     data_ready
      on_substep_end                    one micro-batch more
      on_step_end                       step
      on_log                            metrics; figures into the row of the loss
      on_prediction_step                (first) validation has begun after the event before
      on_evaluate | on_predict          window validation | predict
      on_save                           window checkpoint, since the event before
    on_log with train_loss            phase train ends, meter.stop, last figures
    on_train_end                      report

``evaluate`` and ``predict`` by themselves start at the first ``on_prediction_step``. After an
exception no hook is called: the meter watches the call itself. No hook synchronises the device
or reads a sensor.
"""

import math
from typing import Any

from energy_callbacks.core.active_call import ActiveCall, find_callback_list
from energy_callbacks.core.guard import harmless
from energy_callbacks_huggingface import loop
from energy_callbacks_huggingface.callback_list import OtherCallbacks
from energy_callbacks_huggingface.session import Session
from energy_callbacks_huggingface.sessions import EnergySessions


class EnergyHooks(EnergySessions):
    """Drives a meter; its settings belong to ``GpuEnergyCallback``."""

    @harmless
    def on_init_end(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The trainer is made."""
        callbacks = find_callback_list(self) or []
        if not self._elders(callbacks):
            OtherCallbacks(self, callbacks, None).take_first_place()

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """Training begins; or begins anew with smaller batches, in the same call."""
        session = self._training()
        if session is not None and not session.is_orphan:
            session.tuned()
        else:
            call = ActiveCall.find("train", package="transformers")
            session = self._begin("train", call, args, state, model)
        if session is not None:
            self._begin_training(session, args, state, model)

    @harmless
    def _begin_training(self, session: Session, args: Any, state: Any, model: Any) -> None:
        session.siblings.take_first_place()
        session.begin_training(args, state, model)
        self._meter.plan(state.max_steps - state.global_step)
        self._keep(state)

    @harmless
    def wait_for_data(self) -> None:
        """All callbacks have had an event: from here on the loop waits for data."""
        if (session := self._session) is not None:
            self._meter.mark("batch_done")
            session.see()

    @harmless
    def on_epoch_begin(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The loader's iterator is made next: from here on the loop waits for its first batch."""
        if (session := self._session) is not None:
            session.siblings.hang_curtains()
            self.wait_for_data()

    @harmless
    def on_step_begin(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The data of all micro-batches is there; it is moved to the device inside the step."""
        if (session := self._session) is not None:
            session.begin_step()

    @harmless
    def on_substep_end(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A micro-batch that was not the last of its step."""
        if (session := self._session) is not None:
            session.end_micro_batch()

    def on_step_end(
        self, /, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any
    ) -> None:
        """An optimizer step."""
        self._end_step(args, state, train_dataloader)
        if self._meter.is_over_budget():
            control.should_training_stop = True
            control.should_save |= args.save_strategy != "no"

    @harmless
    def _end_step(self, args: Any, state: Any, loader: Any) -> None:
        if (session := self._session) is not None:
            session.end_step(args, state, loader)
            self._keep(state)

    @harmless
    def on_epoch_end(
        self, /, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any
    ) -> None:
        """An epoch, perhaps cut short."""
        if (session := self._session) is not None:
            self._meter.epoch(max(math.ceil(state.epoch or 0.0) - 1, 0))
            session.end_epoch(args, state, train_dataloader)

    @harmless
    def on_log(
        self,
        /,
        args: Any,
        state: Any,
        control: Any,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A row: with figures of ours if it is one of training. Never logs, never asks to log."""
        session = self._session
        if session is None or logs is None:
            return
        if loop.is_final_row(logs):
            session.stop()  # TensorBoard closes its writer before our on_train_end
            # Now: reading the best checkpoint, which comes next, may fail.
            session.summary = self._save_report(state) or ""
        elif state.is_world_process_zero:
            values, epoch = loop.metrics(logs), state.epoch
            self._meter.record_metrics(values, step=state.global_step, epoch=epoch)
        scalars = self._meter.log(state.global_step) if loop.is_training_row(logs) else {}
        if state.is_world_process_zero:
            # The last row stands beside means of the whole training, and is what ``train`` returns.
            in_logs = self._meter.totals() if loop.is_final_row(logs) else scalars
            session.write(logs, scalars, in_logs, state)
        session.see()

    def on_prediction_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """A batch of an evaluation or a prediction; nothing says that one begins."""
        session = self._living() or self._begin_alone(args, state, model)
        if session is not None:
            session.predict()

    @harmless
    def on_evaluate(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An evaluation is over."""
        self._predicted("validation", state)

    @harmless
    def on_predict(
        self, /, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any
    ) -> None:
        """A prediction is over."""
        self._predicted("predict", state)

    def _predicted(self, name: str, state: Any) -> None:
        session = self._living()
        if session is not None and session.phase == "train":
            session.predicted(name)
            self._keep(state)
        elif session is not None:
            self._end(session, state)

    @harmless
    def on_save(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A checkpoint has been written."""
        if (session := self._session) is not None:
            session.saved()

    @harmless
    def on_train_end(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The last event of training; a trial that was pruned has had no last row."""
        if (session := self._session) is not None:
            self._end(session, state)
