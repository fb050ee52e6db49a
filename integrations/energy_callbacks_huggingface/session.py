"""Measures one call of ``train``, ``evaluate`` or ``predict``, from its first event to its last."""

from functools import partial
from typing import Any

from energy_callbacks.accounting.metrics.scalars import Scalars
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.dashboard import Dashboard
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_huggingface import loop
from energy_callbacks_huggingface.batches import InputCounter
from energy_callbacks_huggingface.callback_list import OtherTrainerCallbacks


class Session:
    """Reports the events of a call to the meter, some of them afterwards.

    Args:
        meter: running.
        call: the user's call; ``None`` if it was not found, so that its end is unknown.
        phase: ``train``, or the phase of a call outside training: ``validation`` or ``predict``.
        others: the other callbacks of the trainer.
        inputs: counts the inputs of the model.

    Attributes:
        summary: of the report in one line, once it is saved.
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
        self.summary: str | None = None
        self._dashboard = Dashboard(meter)
        self._tokens_seen = 0
        self._micro_batches = 0
        self._predicts_since_s: float | None = None
        self._seen_s = self._settled_s = meter.now_s()
        meter.enter(phase)

    def is_under_way(self) -> bool:
        """Whether the call is running, as far as known."""
        return self.call is None or self.call.is_under_way()

    def see(self) -> None:
        """Note an event: a span that is named afterwards may have begun now."""
        self._seen_s = self._meter.now_s()

    def begin_training(self, args: Any, state: Any, model: Any) -> None:
        """Start or restart the training loop."""
        self._tokens_seen = state.num_input_tokens_seen
        self._predicts_since_s = None
        facts = partial(loop.facts, args, state)
        self._dashboard = Dashboard(self._meter, self.others.runs, facts)
        self.inputs.attach(model, args.n_gpu)
        self.see()

    def tuned(self) -> None:
        """Assign the time since the last step to tuning: it ran out of memory."""
        self._name("tuning", self._settled_s)

    def begin_step(self) -> None:
        """Start a step, whose micro-batches have all been fetched."""
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
        """End an epoch, and count micro-batches that belong to no step.

        These exist if a callback stops the training within a step, and in transformers 4.50 if
        rows and batches have different remainders when divided by the accumulation.
        """
        if left_over := self._micro_batches:
            self._meter.count(*self._consumed(args, state, loader, since_step=left_over))
        self.see()

    def _consumed(
        self, args: Any, state: Any, loader: Any, *, since_step: int
    ) -> tuple[float | None, float | None]:
        """Return samples and tokens since the last call."""
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
        # The Trainer sums tokens over all ranks.
        return samples, (self._tokens_seen - before) / float(args.world_size)

    def predict(self) -> None:
        """Note a batch of an evaluation or prediction, which began at the previous event."""
        if self._predicts_since_s is None:
            self._predicts_since_s = self._seen_s
        self.see()

    def predicted(self, name: str) -> None:
        """End an evaluation or prediction inside training."""
        if self._predicts_since_s is not None:
            self._name(name, self._predicts_since_s)

    def saved(self) -> None:
        """Assign the time since the last event to a checkpoint."""
        self._name("checkpoint", self._seen_s)

    def _name(self, name: str, start_s: float) -> None:
        """Assign a span of training to another phase; the loop then waits for data."""
        self.see()
        self._meter.window(name, start_s, self._seen_s)
        self._meter.mark("batch_done")
        self._settled_s = self._seen_s
        self._predicts_since_s = None

    def write(self, logs: dict[str, Any], scalars: Scalars, in_logs: Scalars, state: Any) -> None:
        """Write a row with our figures, and with the last row the report."""
        self.others.write(logs, scalars, in_logs, state)
        self._dashboard.row(scalars, state.global_step)
        if self.summary:
            self._dashboard.end(lambda: loop.last_metrics(state), state.global_step)

    def stop(self) -> None:
        """Stop measuring; totals are exact afterwards."""
        self._meter.leave(self.phase)
        self._meter.stop()

    def close(self) -> None:
        """Restore the model and the trainer."""
        self.inputs.detach()
        self.others.leave()
