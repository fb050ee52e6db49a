"""Counts the samples and tokens of a batch."""

import contextlib
import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from lightning_utilities.core.apply_func import apply_to_collection

from energy_callbacks.core.guard import pass_on_signals
from energy_callbacks_lightning.loop import warn

Counter = Callable[[Any], int]
Counts = tuple[float | None, float | None]
"""Numbers of samples and tokens; ``None`` if unknown."""


class BatchSizes:
    """Counts samples and tokens; for the arguments, see ``LightningStepCounter``.

    Attributes:
        path: keys that lead to a tensor whose first dimension is the number of samples, in batches
            of the type that was searched last.
        ndim: number of dimensions of this tensor.
    """

    def __init__(self, batch_size_fn: Counter | None, tokens_fn: Counter | None) -> None:
        self._samples_of: Counter | None = batch_size_fn or self._first_dimension
        self._tokens_of = tokens_fn
        self._kind: type[Any] | None = None
        self.path: tuple[Any, ...] = ()
        self.ndim = 0

    @property
    def plain(self) -> type[Any] | None:
        """Type of batches whose only count is the first dimension of the batch or of an item."""
        return self._kind if len(self.path) <= 1 and self._tokens_of is None else None

    def forget(self) -> None:
        """Search the next batch again, and compare the first dimensions of all its tensors."""
        self._kind = None

    def of(self, batch: Any) -> Counts:
        """Return the numbers of samples and tokens of a batch."""
        tokens_of = self._tokens_of
        samples = self._samples(batch)
        if tokens_of is None:
            return samples, None
        return samples, self._counted("tokens_fn", tokens_of, batch)

    def _samples(self, batch: Any) -> float | None:
        if type(batch) is self._kind:
            with contextlib.suppress(LookupError, TypeError, AttributeError):  # another structure
                part: Any = functools.reduce(operator.getitem, self.path, batch)
                shape = part.shape
                if len(shape) == self.ndim:
                    return float(shape[0])
        return self._counted("batch_size_fn", self._samples_of, batch)

    def _first_dimension(self, batch: Any) -> int:
        """Return the first dimension of a batch's tensors, and store the path to one of them.

        Raises:
            ValueError: if there is no tensor, or first dimensions differ.
        """
        sizes: set[int] = set()
        apply_to_collection(batch, torch.Tensor, lambda tensor: sizes.update(tensor.shape[:1]))
        if len(sizes) != 1:
            found = f"its tensors have the first dimensions {sorted(sizes)}"
            raise ValueError(found if sizes else "it contains no tensor with a dimension")
        if (path := _path(batch)) is not None:
            tensor = functools.reduce(operator.getitem, path, batch)
            self.path, self._kind, self.ndim = path, type(batch), tensor.ndim
        return sizes.pop()

    def _counted(self, setting: str, count: Counter | None, batch: Any) -> float | None:
        """Return ``count(batch)``. After an error, return ``None`` and stop using ``count``."""
        if count is None:
            return None
        try:
            number = count(batch)
            # Reading a tensor waits for the device; the journal's thread does that.
            return number if isinstance(number, torch.Tensor) else float(number)
        except Exception as error:  # noqa: BLE001 - counting must not end a training
            pass_on_signals()
            is_own = count == self._first_dimension
            warn(
                f"{'the callback' if is_own else setting} could not count a batch ({error!r}); "
                "figures that need this count are left out; "
                + (f"give {setting}=" if is_own else "the function receives a batch of the loader")
            )
            self._samples_of = None if count is self._samples_of else self._samples_of
            self._tokens_of = None if count is self._tokens_of else self._tokens_of
            return None


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
