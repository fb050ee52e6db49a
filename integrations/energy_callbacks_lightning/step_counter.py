"""Counts optimizer steps, samples and tokens of a Lightning training, without fetching data.

The step of a batch in Lightning's loggers is the number of earlier batches that ended with an
optimizer step; in manual optimization it is the number of all earlier batches. ``global_step``
differs: in ``on_train_batch_end`` it includes the optimizer step of the current batch, and in
manual optimization it counts the steps of every optimizer.
"""

import contextlib
import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch
from lightning_utilities.core.apply_func import apply_to_collection

from energy_callbacks.accounting.step_marks import STEP, StepMarks
from energy_callbacks.core.guard import Abandonable, give_up, pass_on_signals
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_lightning.loop import step_progress, warn

Counter = Callable[[Any], int]
# Numbers of samples and tokens; ``None`` if unknown.
_Counts = tuple[float | None, float | None]


class HookOwner(Abandonable, Protocol):
    """The callback of a step counter."""

    def act(self, trainer: Any) -> None:
        """Do what is due at a step, such as writing a row."""
        ...


class LightningStepCounter:
    """Reports optimizer steps, samples and tokens, and computes the step of the loggers.

    Most batches are plain: they end with one optimizer step, and the number of their samples is
    the first dimension of a tensor at a known place in the batch.

    Args:
        meter: receives the steps.
        batch_size_fn: returns the number of samples in a batch; ``None`` uses the first dimension
            of the batch's tensors.
        length_fn: returns the number of tokens in a batch; ``None`` counts no tokens.
    """

    def __init__(
        self, meter: EnergyMeter, batch_size_fn: Counter | None, length_fn: Counter | None
    ) -> None:
        self._meter = meter
        self._samples_of: Counter | None = batch_size_fn or self._first_dimension
        self._tokens_of = length_fn
        self._is_automatic = True
        self._earlier: list[_Counts] = []
        # Type of the batches with a tensor at ``_path``, which has ``_ndim`` dimensions.
        self._kind: type[Any] | None = None
        self._path: tuple[Any, ...] = ()
        self._ndim = 0
        self._progress: Any = None
        self._reported = 0  # optimizer steps
        self._extra = 0  # ``stepped_batches`` minus ``_reported``
        self._every = 1
        self._marks: StepMarks = meter.marks()
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
        self._marks = self._meter.marks()
        self.begin_epoch(trainer, 1)
        self._reported = trainer.global_step
        self.stepped_batches = trainer.global_step if self._is_automatic else before
        self._earlier = []
        self._owner = owner

    def begin_epoch(self, trainer: Any, every: int) -> None:
        """Read what cannot change within an epoch.

        Args:
            trainer: the trainer.
            every: the adapter must act at each step whose number is divisible by this.
        """
        self._every = every
        self._is_automatic = trainer.lightning_module.automatic_optimization
        self._progress = step_progress(trainer)
        self.check_sizes()

    def check_sizes(self) -> None:
        """Compare the first dimensions of all tensors of the next batch."""
        self._kind = None
        self._expect(None)

    def _expect(self, plain: type[Any] | None) -> None:
        """Prepare ``on_train_batch_end`` for plain batches of a type; ``None`` for other ones."""
        key = self._path[0] if self._path else None
        marks = self._marks
        # One tuple: with cold caches, each attribute of an object may take 0.1 us.
        self._hot = (
            plain, key, self._ndim, self._progress, marks, marks.now_s, self._extra, self._every
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
            plain, key, ndim, progress, marks, now_s, extra, every = self._hot
            if type(batch) is plain:
                part: Any = batch if key is None else batch[key]
                shape = part.shape
                completed = progress.completed
                if len(shape) == ndim and completed == self._reported + 1:
                    marks.append((STEP, now_s(), shape[0], None, None))
                    self._reported = completed
                    if (completed + extra) % every:
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
        samples = self._samples(batch)
        tokens = None if self._tokens_of is None else self._counted(self._tokens_of, batch)
        steps = self._progress.completed - self._reported
        is_stepped = steps > 0 or not self._is_automatic
        stepped_batches = self.stepped_batches + is_stepped
        if steps:
            self._end_steps(steps, [*self._earlier, (samples, tokens)])
        else:
            self._earlier.append((samples, tokens))
            self._marks.done()
        self.stepped_batches = stepped_batches
        is_plain = steps and self._is_automatic and len(self._path) <= 1 and not self._tokens_of
        self._expect(self._kind if is_plain else None)
        return bool(steps) and stepped_batches % self._every == 0

    def _end_steps(self, steps: int, batches: list[_Counts]) -> None:
        """Report optimizer steps and the counts of their batches."""
        self._reported += steps
        self._earlier = []
        samples, tokens = (_sum(of_batches) for of_batches in zip(*batches, strict=True))
        self._marks.step(samples, tokens)
        for _ in range(steps - 1):
            # Several optimizers may have used the same samples, which count once.
            self._marks.step(0, None if tokens is None else 0)

    def _samples(self, batch: Any) -> float | None:
        if type(batch) is self._kind:
            with contextlib.suppress(LookupError, TypeError, AttributeError):  # another structure
                part: Any = functools.reduce(operator.getitem, self._path, batch)
                shape = part.shape
                if len(shape) == self._ndim:
                    return float(shape[0])
        return self._counted(self._samples_of, batch)

    def _first_dimension(self, batch: Any) -> int:
        """Return the first dimension of a batch's tensors, and store the path to one of them.

        Raises:
            ValueError: if there is no tensor, or first dimensions differ.
        """
        sizes: set[int] = set()
        apply_to_collection(batch, torch.Tensor, lambda tensor: sizes.update(tensor.shape[:1]))
        if len(sizes) != 1:
            raise ValueError(f"its tensors have the first dimensions {sorted(sizes)}")
        if (path := _path(batch)) is not None:
            tensor = functools.reduce(operator.getitem, path, batch)
            self._path, self._kind, self._ndim = path, type(batch), tensor.ndim
        return sizes.pop()

    def _counted(self, count: Counter | None, batch: Any) -> float | None:
        """Return ``count(batch)``. After an error, return ``None`` and stop using ``count``."""
        if count is None:
            return None
        try:
            return float(count(batch))
        except Exception as error:  # noqa: BLE001 - counting must not end a training
            pass_on_signals()
            warn(
                f"{getattr(count, '__name__', count)} could not count a batch ({error!r}); "
                "figures that need it are left out; give batch_size_fn= or length_fn="
            )
            self._samples_of = None if count is self._samples_of else self._samples_of
            self._tokens_of = None if count is self._tokens_of else self._tokens_of
            return None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without the objects of a running training."""
        idle = dict.fromkeys(("_progress", "_marks", "_owner", "_hot"))
        return vars(self) | idle


def _sum(counts: Iterable[float | None]) -> float | None:
    """Return a sum; ``None`` if any count is unknown."""
    found = list(counts)
    return None if None in found else sum(count for count in found if count is not None)


def _path(part: Any) -> tuple[Any, ...] | None:
    """Return the path to the first tensor; ``None`` if it is inside another kind of object."""
    if isinstance(part, torch.Tensor):
        return () if part.ndim else None
    items: Iterable[Any] = part.items() if isinstance(part, Mapping) else ()
    if isinstance(part, list | tuple):
        items = enumerate(part)
    for key, inner in items:
        if (rest := _path(inner)) is not None:
            return (key, *rest)
    return None
