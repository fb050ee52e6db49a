"""Measures one call of ``train``, ``evaluate`` or ``predict``, from its first event to its last."""

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from energy_callbacks.accounting.metrics.scalars import Scalars
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.dashboard import Dashboard
from energy_callbacks.meter import Ending, EnergyMeter
from energy_callbacks.report_process.pages import Pages
from energy_callbacks_huggingface import loop
from energy_callbacks_huggingface.batches import InputCounter
from energy_callbacks_huggingface.callback_list import OtherTrainerCallbacks


class Session:
    """Reports the events of one call to the meter, and assigns past time to phases.

    Args:
        meter: a running meter.
        call: the user's call; ``None`` if it was not found, so that its end cannot be detected.
        phase: ``train`` for a call of ``train``; ``validation`` or ``predict`` for other calls.
        others: the other callbacks of the trainer.
        inputs: counts samples and tokens in the inputs of the model.

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
        self.call = call
        self.phase = phase
        self.others = others
        self.inputs = inputs
        self._dashboard = Dashboard(meter)
        self._tokens_seen = 0
        self._micro_batches = 0
        self._predicts_since_s: float | None = None
        self._seen_s = self._settled_s = meter.now_s()
        meter.enter(phase)

    def is_under_way(self) -> bool:
        """Return whether the call is still running; always ``True`` if the call was not found."""
        return self.call is None or self.call.is_under_way()

    def see(self) -> None:
        """Note the time of an event. The next event may assign the time since then to a phase."""
        self._seen_s = self._meter.now_s()

    def begin_training(self, args: Any, state: Any, model: Any) -> None:
        """Reset counts, and start to count the model's inputs, when training starts or restarts."""
        self._tokens_seen = state.num_input_tokens_seen
        self._predicts_since_s = None
        facts = partial(loop.facts, args, state)
        self._dashboard = Dashboard(self._meter, self.others.runs, facts)
        self.inputs.attach(model, args.n_gpu)
        self.see()

    def tuned(self) -> None:
        """Assign the time since the last step or window to the phase ``tuning``.

        If there was no step or window, the time since the session began is assigned. Called after
        an out-of-memory error, when the Trainer restarts with a smaller batch size.
        """
        self._name("tuning", self._settled_s)

    def begin_step(self) -> None:
        """Start an optimizer step. All its micro-batches have been fetched."""
        self._meter.mark("data_ready")
        self._micro_batches = 0
        self._predicts_since_s = None
        self.inputs.expect(is_first=True)
        self.see()

    def end_micro_batch(self) -> None:
        """End a micro-batch that is not the last of its step."""
        self._micro_batches += 1
        self.inputs.expect(is_first=False)
        self.see()

    def end_step(self, args: Any, state: Any, loader: Any) -> None:
        """End an optimizer step and its last micro-batch."""
        self._micro_batches += 1
        self._meter.step(*self._consumed(args, state, loader, since_step=0))
        self.see()
        self._settled_s = self._seen_s

    def end_epoch(self, args: Any, state: Any, loader: Any) -> None:
        """End an epoch, and count micro-batches that belong to no optimizer step.

        There are such micro-batches if a callback stops the training within a step, and in
        transformers 4.50 also at the end of some epochs.
        """
        if left_over := self._micro_batches:
            self._meter.count(*self._consumed(args, state, loader, since_step=left_over))
        self.see()

    def _consumed(
        self, args: Any, state: Any, loader: Any, *, since_step: int
    ) -> tuple[float | None, float | None]:
        """Return the numbers of samples and tokens since the last call of this method.

        The numbers are those of this rank. However, if the Trainer counts the tokens, their number
        is the mean over all ranks. A number is ``None`` if unknown.
        """
        done, self._micro_batches = self._micro_batches, 0
        before, self._tokens_seen = self._tokens_seen, state.num_input_tokens_seen
        if self.inputs.counts("batch_size_fn"):
            samples = self.inputs.take("batch_size_fn", done)
        else:
            samples = loop.samples(args, state, loader, done, since_step=since_step)
        if self.inputs.counts("length_fn"):
            return samples, self.inputs.take("length_fn", done)
        if args.include_num_input_tokens_seen in (False, "no"):
            return samples, None
        # The Trainer's count is the sum over all ranks.
        return samples, (self._tokens_seen - before) / float(args.world_size)

    def predict(self) -> None:
        """Note that a batch of an evaluation or prediction has ended.

        There is no hook for the start of an evaluation or prediction. The last event before its
        first batch counts as the start.
        """
        if self._predicts_since_s is None:
            self._predicts_since_s = self._seen_s
        self.see()

    def predicted(self, name: str) -> None:
        """Assign the time of an evaluation or prediction in ``train`` to the phase ``name``."""
        if self._predicts_since_s is not None:
            self._name(name, self._predicts_since_s)

    def saved(self) -> None:
        """Assign the time since the last event to the phase ``checkpoint``."""
        self._name("checkpoint", self._seen_s)

    def _name(self, name: str, start_s: float) -> None:
        """Assign the time since ``start_s`` to a phase, and mark that the loop waits for data."""
        self.see()
        self._meter.window(name, start_s, self._seen_s)
        self._meter.mark("batch_done")
        self._settled_s = self._seen_s
        self._predicts_since_s = None

    def write(self, logs: dict[str, Any], scalars: Scalars, in_logs: Scalars, state: Any) -> None:
        """Write our figures of a row; for the arguments, see ``OtherTrainerCallbacks.write``."""
        self.others.write(logs, scalars, in_logs, state)
        self._dashboard.row(scalars, state.global_step)

    def pages(self, state: Any) -> Pages | None:
        """Return what is written to TensorBoard together with the report."""
        return self._dashboard.pages(lambda: loop.last_metrics(state), state.global_step)

    def ending(self) -> AbstractContextManager[Ending]:
        """Leave the phase and end the attempt; see ``EnergyMeter.ending``."""
        self._meter.leave(self.phase)
        return self._meter.ending()

    def close(self) -> None:
        """Remove the model's hook and the filters of callbacks, and close our own event file."""
        self.inputs.detach()
        self.others.leave()
