"""Counts optimizer steps, samples and tokens of a Lightning training, without fetching data.

The step of a batch in Lightning's loggers is the number of earlier batches that ended with an
optimizer step; in manual optimization it is the number of all earlier batches. ``global_step``
differs: in ``on_train_batch_end`` it includes the optimizer step of the current batch, and in
manual optimization it counts the steps of every optimizer.
"""

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from lightning_utilities.core.apply_func import apply_to_collection

from energy_callbacks.accounting.step_marks import StepMarks
from energy_callbacks.core.guard import pass_on_signals
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_lightning.loop import step_progress, warn

Counter = Callable[[Any], int]
# Numbers of samples and tokens; ``None`` if unknown.
_Counts = tuple[float | None, float | None]


class LightningStepCounter:
    """Reports optimizer steps, samples and tokens, and computes the step of the loggers.

    Args:
        meter: receives the steps.
        batch_size_fn: returns the number of samples in a batch; ``None`` uses the first dimension
            of the batch's tensors.
        tokens_fn: returns the number of tokens in a batch; ``None`` counts no tokens.

    Attributes:
        stepped_batches: number of batches so far that ended with an optimizer step; in manual
            optimization, the number of all batches so far.
    """

    def __init__(
        self, meter: EnergyMeter, batch_size_fn: Counter | None, tokens_fn: Counter | None
    ) -> None:
        self._meter = meter
        self._samples_of: Counter | None = batch_size_fn or self._first_dimension
        self._tokens_of = tokens_fn
        self._path: tuple[Any, ...] = ()
        self._kind: type | None = None
        self._ndim = 0
        self._progress: Any = None
        self._is_automatic = True
        self._global_step = 0
        self._earlier: list[_Counts] = []
        self._every = 1
        self._marks: StepMarks = meter._step_marks()
        self._step = self._marks.step
        self.stepped_batches = 0

    @property
    def logger_step(self) -> int:
        """The step at which Lightning logs the last batch that ``stepped_batches`` counts."""
        return max(self.stepped_batches - 1, 0)

    def begin(self, trainer: Any) -> None:
        """Set the counts when training starts or resumes from a checkpoint."""
        self.begin_epoch(trainer, 1)
        self._global_step = trainer.global_step
        self._earlier = []
        self._marks = self._meter._step_marks()
        self._step = self._marks.step
        if self._is_automatic:
            self.stepped_batches = trainer.global_step

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

    def end_batch(self, batch: Any) -> bool:
        """Report a batch, and the optimizer steps that ended with it.

        This runs at every batch; each call of another function takes about 1 us.

        Returns:
            Whether an optimizer step ended with the batch, whose number is divisible by ``every``.
        """
        try:
            part: Any = batch if type(batch) is self._kind else None
            for key in self._path:
                part = part[key]
            shape = part.shape
            samples = (
                shape[0] if len(shape) == self._ndim else self._counted(self._samples_of, batch)
            )
        except (LookupError, TypeError, AttributeError):  # the structure is not known, or another
            samples = self._counted(self._samples_of, batch)
        tokens = None if self._tokens_of is None else self._counted(self._tokens_of, batch)
        steps = self._progress.completed - self._global_step
        if steps != 1 or self._earlier or not self._is_automatic:
            return self._end_other_batch(steps, (samples, tokens))
        self._global_step += 1
        self.stepped_batches = stepped = self.stepped_batches + 1
        self._step(samples, tokens)
        return not stepped % self._every

    def _end_other_batch(self, steps: int, counts: _Counts) -> bool:
        """End a batch that is not an optimizer step alone; ``steps`` is the number of its steps."""
        self._earlier.append(counts)
        if steps or not self._is_automatic:
            self.stepped_batches += 1
        if not steps:
            self._marks.done()
            return False
        self._global_step += steps
        samples, tokens = (_sum(of_batches) for of_batches in zip(*self._earlier, strict=True))
        self._earlier = []
        self._marks.step(samples, tokens)
        for _ in range(steps - 1):
            # Several optimizers may have used the same samples, which count once.
            self._marks.step(0, None if tokens is None else 0)
        return not self.stepped_batches % self._every

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
                "figures that need it are left out; give batch_size_fn= or tokens_fn="
            )
            self._samples_of = None if count is self._samples_of else self._samples_of
            self._tokens_of = None if count is self._tokens_of else self._tokens_of
            return None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without the objects of a running training."""
        return vars(self) | {"_progress": None, "_marks": None, "_step": None}


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
