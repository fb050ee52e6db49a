"""Counts optimizer steps, samples and tokens of a Lightning training, without fetching data.

The step of a batch in Lightning's loggers is the number of earlier batches that ended with an
optimizer step; in manual optimization it is the number of all earlier batches. ``global_step``
differs: in ``on_train_batch_end`` it includes the optimizer step of the current batch, and in
manual optimization it counts the steps of every optimizer.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from energy_callbacks.accounting.metrics.row_schedule import RowSchedule
from energy_callbacks.accounting.step_marks import STEP, StepMarks
from energy_callbacks.core.guard import Abandonable, give_up
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_lightning.batch_sizes import BatchSizes, Counter, Counts
from energy_callbacks_lightning.loop import step_progress


class HookOwner(Abandonable, Protocol):
    """The callback of a step counter."""

    def act(self, trainer: Any) -> None:
        """Do what is due at a step, such as writing a row."""


class LightningStepCounter:
    """Reports optimizer steps, samples and tokens, and computes the step of the loggers.

    Most batches are plain: they end with one optimizer step, and the number of their samples is
    the first dimension of a tensor at a known place in the batch.

    Args:
        meter: receives the steps.
        batch_size_fn: returns the number of samples in a batch; ``None`` uses the first dimension
            of the batch's tensors.
        tokens_fn: returns the number of tokens in a batch; ``None`` counts no tokens.
    """

    def __init__(
        self, meter: EnergyMeter, batch_size_fn: Counter | None, tokens_fn: Counter | None
    ) -> None:
        self._meter = meter
        self._sizes = BatchSizes(batch_size_fn, tokens_fn)
        self._is_automatic = True
        self._earlier: list[Counts] = []
        self._progress: Any = None
        self._reported = 0  # optimizer steps
        self._extra = 0  # ``stepped_batches`` minus ``_reported``
        self._every = 1
        self._rows = RowSchedule(meter.now_s)
        self._marks: StepMarks = meter._step_marks()
        self._owner: HookOwner | None = None
        self._expect(None)

    @property
    def stepped_batches(self) -> int:
        """Number of batches so far that ended with an optimizer step.

        In manual optimization, it is the number of all batches so far.
        """
        return self._reported + self._extra

    @stepped_batches.setter
    def stepped_batches(self, number: int) -> None:
        self._extra = number - self._reported

    @property
    def logger_step(self) -> int:
        """The step at which Lightning logs the last batch that ``stepped_batches`` counts."""
        return max(self.stepped_batches - 1, 0)

    def begin(self, trainer: Any, owner: HookOwner | None = None) -> None:
        """Set the counts when training starts or resumes from a checkpoint.

        Args:
            trainer: the trainer.
            owner: the callback, for ``on_train_batch_end``.
        """
        before = self.stepped_batches
        self._marks = self._meter._step_marks()
        self.begin_epoch(trainer, 1)
        self._reported = trainer.global_step
        self.stepped_batches = trainer.global_step if self._is_automatic else before
        self._earlier = []
        self._owner = owner

    def begin_epoch(self, trainer: Any, every: int, rows: RowSchedule | None = None) -> None:
        """Read what cannot change within an epoch.

        Args:
            trainer: the trainer.
            every: the adapter must act at each step whose number is divisible by this.
            rows: the adapter acts only for rows, and need not act before ``rows.next_s``; ``None``
                if it must act at any time.
        """
        self._every = every
        self._rows = rows or RowSchedule(self._meter.now_s)
        self._is_automatic = trainer.lightning_module.automatic_optimization
        self._progress = step_progress(trainer)
        self.check_sizes()

    def check_sizes(self) -> None:
        """Compare the first dimensions of all tensors of the next batch."""
        self._sizes.forget()
        self._expect(None)

    def _expect(self, plain: type[Any] | None) -> None:
        """Prepare ``on_train_batch_end`` for plain batches of a type; ``None`` for other ones."""
        sizes, marks = self._sizes, self._marks
        key = sizes.path[0] if sizes.path else None
        # One tuple: with cold caches, each attribute of an object may take 0.1 us.
        self._hot = (
            plain, key, sizes.ndim, self._progress, marks, marks.now_s, self._extra, self._every,
            self._rows,
        )  # fmt: skip

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """The hook of ``EnergyHooks``.

        For a plain batch it calls no other function that is written in Python, because each such
        call takes about a microsecond in a training.
        """
        is_reported = False
        try:
            plain, key, ndim, progress, marks, now_s, extra, every, rows = self._hot
            if type(batch) is plain:
                part: Any = batch if key is None else batch[key]
                shape = part.shape
                completed = progress.completed
                if len(shape) == ndim and completed == self._reported + 1:
                    stepped_s = now_s()
                    marks.append((STEP, stepped_s, shape[0], None, None))
                    self._reported = completed
                    if (completed + extra) % every or stepped_s < rows.next_s:
                        return
                    is_reported = True
        except (LookupError, TypeError, AttributeError):  # the batch has another structure
            pass
        try:
            if (is_reported or self.end_batch(batch)) and self._owner is not None:
                self._owner.act(trainer)
        except Exception:  # noqa: BLE001 - a bug here must not stop the training
            give_up(self._owner or self._meter, "on_train_batch_end")

    def end_batch(self, batch: Any) -> bool:
        """Report a batch of any kind, and the optimizer steps that ended with it.

        Returns:
            Whether an optimizer step ended with the batch, whose number is divisible by ``every``.
        """
        counts = self._sizes.of(batch)
        steps = self._progress.completed - self._reported
        is_stepped = steps > 0 or not self._is_automatic
        stepped_batches = self.stepped_batches + is_stepped
        if steps:
            self._end_steps(steps, [*self._earlier, counts])
        else:
            self._earlier.append(counts)
        self.stepped_batches = stepped_batches
        is_plain = steps and self._is_automatic
        self._expect(self._sizes.plain if is_plain else None)
        return bool(steps) and stepped_batches % self._every == 0

    def _end_steps(self, steps: int, batches: list[Counts]) -> None:
        """Report optimizer steps and the counts of their batches."""
        self._reported += steps
        self._earlier = []
        samples, tokens = (_sum(of_batches) for of_batches in zip(*batches, strict=True))
        self._marks.step(samples, tokens)
        for _ in range(steps - 1):
            # Several optimizers may have used the same samples, which count once.
            self._marks.step(0, None if tokens is None else 0)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without the objects of a running training."""
        return vars(self) | dict.fromkeys(("_progress", "_rows", "_marks", "_owner", "_hot"))


def _sum(counts: Iterable[float | None]) -> float | None:
    """Return a sum; ``None`` if any count is unknown."""
    found = list(counts)
    return None if None in found else sum(count for count in found if count is not None)
