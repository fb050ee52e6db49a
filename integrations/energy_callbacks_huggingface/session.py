"""One call of ``train``, ``evaluate`` or ``predict``, from its first event to its last."""

from typing import Any

from energy_callbacks.accounting.metrics.scalars import Scalars
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.dashboard import Dashboard
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_huggingface import loop, tensorboard
from energy_callbacks_huggingface.batches import InputCounter
from energy_callbacks_huggingface.callback_list import OtherCallbacks


class Session:
    """Reports what happens in a call to the meter, some of it afterwards.

    Args:
        meter: has been started.
        call: of the user; ``None`` if it was not found.
        phase: ``train``, or what the call does by itself: ``validation`` or ``predict``.
        siblings: the other callbacks of the trainer.
        inputs: counts what the model is given.
    """

    def __init__(
        self,
        meter: EnergyMeter,
        call: ActiveCall | None,
        phase: str,
        siblings: OtherCallbacks,
        inputs: InputCounter,
    ) -> None:
        self._meter = meter
        self._call = call
        self.phase = phase
        self.siblings = siblings
        self.inputs = inputs
        self.summary: str | None = None
        self._dashboard = Dashboard(meter)
        self._tokens: loop.TokenCounter | None = None
        self._micro_batches = 0
        self._predicts_since_s: float | None = None
        self._seen_s = self._settled_s = meter.now_s()
        meter.enter(phase)

    @property
    def is_orphan(self) -> bool:
        """Whether it is unknown when its call ends."""
        return self._call is None

    def is_under_way(self) -> bool:
        """Whether its call goes on, as far as known."""
        return self._call is None or self._call.is_under_way()

    def see(self) -> None:
        """An event: what is named afterwards may have begun now."""
        self._seen_s = self._meter.now_s()

    def begin_training(self, args: Any, state: Any, model: Any) -> None:
        """The training loop begins, or begins anew."""
        self._tokens = loop.TokenCounter(state)
        self._predicts_since_s = None
        self._dashboard = tensorboard.dashboard(self._meter, self.siblings.runs(), args, state)
        self.inputs.attach(model, args.n_gpu)
        self.see()

    def tuned(self) -> None:
        """The steps since the last one did not fit into memory; the loop begins again."""
        self._name("tuning", self._settled_s)

    def begin_step(self) -> None:
        """All micro-batches of a step have been fetched."""
        self._meter.mark("data_ready")
        self._micro_batches = 0
        self._predicts_since_s = None
        self.inputs.expect(is_first=True)
        self.see()

    def end_micro_batch(self) -> None:
        """A micro-batch is done that was not the last of its step."""
        self._micro_batches += 1
        self.inputs.expect(is_first=False)
        self.see()

    def end_step(self, args: Any, state: Any, loader: Any) -> None:
        """An optimizer step is done, and with it its last micro-batch."""
        self._micro_batches += 1
        self._meter.step(*self._consumed(args, state, loader, since_step=0))
        self.see()
        self._settled_s = self._seen_s

    def end_epoch(self, args: Any, state: Any, loader: Any) -> None:
        """An epoch is over; its last micro-batches may not have come to a step.

        So it is if a callback stops the training between two of them, and in transformers
        4.50 wherever rows and batches leave different remainders by the accumulation.
        """
        if left_over := self._micro_batches:
            self._meter.count(*self._consumed(args, state, loader, since_step=left_over))
        self.see()

    def _consumed(
        self, args: Any, state: Any, loader: Any, *, since_step: int
    ) -> tuple[float | None, float | None]:
        """Samples and tokens since they were last asked for."""
        done, self._micro_batches = self._micro_batches, 0
        if self.inputs.counts("batch_size_fn"):
            samples = self.inputs.take("batch_size_fn", done)
        else:
            samples = loop.samples(args, state, loader, done, since_step=since_step)
        tokens = self._tokens.take(args, state) if self._tokens else None
        if self.inputs.counts("length_fn"):
            tokens = self.inputs.take("length_fn", done)
        return samples, tokens

    def predict(self) -> None:
        """A batch of an evaluation, or of a prediction: it began at the event before the first."""
        if self._predicts_since_s is None:
            self._predicts_since_s = self._seen_s
        self.see()

    def predicted(self, name: str) -> None:
        """An evaluation or a prediction inside training is over."""
        if self._predicts_since_s is not None:
            self._name(name, self._predicts_since_s)

    def saved(self) -> None:
        """A checkpoint has been written since the last event."""
        self._name("checkpoint", self._seen_s)

    def _name(self, name: str, start_s: float) -> None:
        """Give a span of training another name; what comes next waits for data."""
        self.see()
        self._meter.window(name, start_s, self._seen_s)
        self._meter.mark("batch_done")
        self._settled_s = self._seen_s
        self._predicts_since_s = None

    def write(self, logs: dict[str, Any], scalars: Scalars, in_logs: Scalars, state: Any) -> None:
        """Hand a row around, with figures of ours; with the last one goes the report."""
        self.siblings.write(logs, scalars, in_logs, state)
        self._dashboard.row(scalars, state.global_step)
        if self.summary:
            self._dashboard.end(lambda: tensorboard.metrics(state), state.global_step)

    def stop(self) -> None:
        """Nothing more is measured; totals are exact from here on."""
        self._meter.leave(self.phase)
        self._meter.stop()

    def close(self) -> None:
        """Leave the model and the trainer as they were."""
        self.inputs.detach()
        self.siblings.leave()
