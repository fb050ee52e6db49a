"""Measures one call of ``train``, ``evaluate`` or ``predict``, from its first event to its last."""

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from energy_callbacks.accounting.metrics.row_schedule import RowSchedule
from energy_callbacks.accounting.metrics.scalars import Scalars
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.dashboard import Dashboard
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.report_process.endings import Ending
from energy_callbacks.report_process.pages import Pages
from energy_callbacks_huggingface import loop
from energy_callbacks_huggingface.batches import InputCounter
from energy_callbacks_huggingface.callback_list import OtherTrainerCallbacks
from energy_callbacks_huggingface.work_counter import WorkCounter


class Session:
    """Reports the events of one call to the meter, and assigns past time to phases.

    Args:
        meter: a running meter.
        call: the user's call; ``None`` if it was not found, so that its end cannot be detected.
        phase: ``train`` for a call of ``train``; ``validation`` or ``predict`` for other calls.
        others: the other callbacks of the trainer.
        inputs: counts samples and tokens in the inputs of the model.

    Attributes:
        has_budget: whether the user has set a budget of energy or emissions.
        marks: reports events of steps to the meter.
        seen_s: monotonic time of the last event.
        settled_s: monotonic time of the last step or window.
        counts_inputs: whether the inputs of the model are counted.
        step_size: number of samples in the next step, if there is nothing else to count and nothing
            to do at its end; otherwise ``None``. ``on_step_end`` then calls ``end_step``.
        predicts_since_s: monotonic time at which an evaluation or prediction began; ``None`` if
            none is running.
    """

    def __init__(
        self,
        meter: EnergyMeter,
        call: ActiveCall | None,
        phase: str,
        others: OtherTrainerCallbacks,
        inputs: InputCounter,
    ) -> None:
        self._meter = meter
        self.marks = meter._step_marks()
        self.has_budget = meter.config.has_budget
        self._now_s = meter._clock.monotonic_s
        self.call = call
        self.phase = phase
        self.others = others
        self.inputs = inputs
        self.counts_inputs = inputs.is_used
        self._dashboard = Dashboard(meter)
        self._schedule = RowSchedule(self._now_s)
        self._calls_last = False
        self._work = WorkCounter(inputs)
        self._micro_batches = 0
        self._has_ended = False
        self.step_size: int | None = None
        self.predicts_since_s: float | None = None
        self.seen_s = self.settled_s = meter.now_s()
        meter.enter(phase)

    def is_under_way(self) -> bool:
        """Return whether the call is still running; always ``True`` if the call was not found."""
        return self.call is None or self.call.is_under_way()

    def see(self) -> None:
        """Note the time of an event. The next event may assign the time since then to a phase."""
        self.seen_s = self._now_s()

    def begin_window(self) -> None:
        """Note the time of an event after which the Trainer evaluates or saves, as ``see``."""
        self.seen_s = self._meter._begin_window()

    def begin_training(
        self, args: Any, state: Any, model: Any, log_every_n_steps: int | None
    ) -> None:
        """Reset counts, and start to count the model's inputs, when training starts or restarts."""
        is_per_epoch = log_every_n_steps is None and args.logging_strategy == "epoch"
        self._schedule = RowSchedule(self._now_s, 1 if is_per_epoch else log_every_n_steps)
        self._work.begin_training(args, state)
        self.step_size = None
        self._micro_batches = 0
        self.predicts_since_s = None
        facts = partial(loop.facts, args, state)
        self._dashboard = Dashboard(self._meter, self.others.runs, facts, self.others.run_logs)
        self.inputs.attach(model, args.n_gpu)
        self.see()

    def tuned(self) -> None:
        """Assign the time since the last step or window to the phase ``tuning``.

        If there was no step or window, the time since the session began is assigned. Called after
        an out-of-memory error, when the Trainer restarts with a smaller batch size.
        """
        self._name("tuning", self.settled_s)

    def begin_epoch(self) -> None:
        """Start an epoch. Its batches are read at its first optimizer step."""
        self._calls_last = self.others.takes_time()
        self._work.begin_epoch()
        self.step_size = None

    def wait_for_data(self) -> None:
        """Mark that the loop waits for data."""
        self.marks.done()
        self.seen_s = self._now_s()

    def end_micro_batch(self) -> None:
        """End a micro-batch that is not the last of its step."""
        self._micro_batches += 1
        self.step_size = None
        self.inputs.expect(is_first=False)
        self.see()

    def end_step(self, args: Any, state: Any, loader: Any) -> None:
        """End an optimizer step and its last micro-batch; see ``step_size``."""
        done, self._micro_batches = self._micro_batches + 1, 0
        self.marks.step(*self._work.take(args, state, loader, done))
        self.seen_s = self.settled_s = self._now_s()
        has_more = self._calls_last or self.has_budget
        self.step_size = None if has_more else self._work.plain_size
        if self._calls_last:
            self.others.call_last()

    def end_epoch(self, args: Any, state: Any, loader: Any) -> None:
        """End an epoch, and count micro-batches that belong to no optimizer step.

        There are such micro-batches if a callback stops the training within a step, and in
        transformers 4.50 also at the end of some epochs.
        """
        left_over, self._micro_batches = self._micro_batches, 0
        if left_over:
            taken = self._work.take(args, state, loader, left_over, since_step=left_over)
            self._meter.count(*taken)
        self.begin_window()

    def predict(self) -> None:
        """Note that a batch of an evaluation or prediction has ended.

        There is no hook for the start of an evaluation or prediction. The last event before its
        first batch counts as the start.
        """
        if self.predicts_since_s is None:
            self.predicts_since_s = self.seen_s
        self.see()

    def predicted(self, name: str) -> None:
        """Assign the time of an evaluation or prediction in ``train`` to the phase ``name``."""
        if self.predicts_since_s is not None:
            self._name(name, self.predicts_since_s)

    def saved(self) -> None:
        """Assign the time since the last event to the phase ``checkpoint``."""
        self._name("checkpoint", self.seen_s)

    def _name(self, name: str, start_s: float) -> None:
        """Assign the time since ``start_s`` to a phase, and mark that the loop waits for data."""
        self.see()
        self._meter.window(name, start_s, self.seen_s)
        self._meter.batch_done()
        self.settled_s = self.seen_s
        self.predicts_since_s = None

    def is_row_due(self, state: Any) -> bool:
        """Return whether figures are added to a row with the loss."""
        return self._schedule.is_due(state.global_step, logs_loss=True)

    def write(self, logs: dict[str, Any], scalars: Scalars, in_logs: Scalars, state: Any) -> None:
        """Write our figures of a row; for the arguments, see ``OtherTrainerCallbacks.write``."""
        start_s = self._now_s()
        self.others.write(logs, scalars, in_logs, state)
        if scalars:
            self._dashboard.row(scalars, state.global_step)
            self._schedule.logged(self._now_s() - start_s)

    def pages(self, state: Any) -> Pages | None:
        """End the training in trackers; return what is written to TensorBoard with the report."""
        return self._dashboard.pages(lambda: loop.last_metrics(state), state.global_step)

    def ending(self) -> AbstractContextManager[Ending]:
        """Leave the phase and end the call; see ``EnergyMeter._end_call``."""
        if not self._has_ended:  # otherwise a phase of the user may have this name
            self._has_ended = True
            self._meter.leave(self.phase)
        return self._meter._end_call()

    def close(self) -> None:
        """Remove the model's hook and the filters of callbacks, and close our own event file."""
        self.inputs.detach()
        self.others.leave()
