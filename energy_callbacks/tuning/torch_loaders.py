"""Copies PyTorch data loaders, and finds their random generators and the longest samples."""

import copy
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def resized(loader: Any, size: int, *, drop_last: bool) -> Any:
    """Return a copy of a data loader with another batch size and ``drop_last``.

    Args:
        loader: a ``DataLoader`` with a ``BatchSampler``.
        size: batch size of the copy.
        drop_last: whether the copy leaves out an incomplete last batch.
    """
    resized = copy.copy(loader)
    sampler = type(loader.batch_sampler)(loader.sampler, size, drop_last)
    # ``vars`` is used because ``DataLoader.__setattr__`` raises an error for these attributes. The
    # loader is copied because not every subclass can be created from its attributes.
    vars(resized).update(
        batch_size=size, drop_last=drop_last, batch_sampler=sampler, _iterator=None
    )
    return resized


def generators(loaders: Iterable[Any]) -> Iterator[Any]:
    """Yield PyTorch's random generators that are attributes of loaders and of their samplers."""
    for loader in loaders:
        for value in (*vars(loader).values(), *vars(loader.sampler).values()):
            if isinstance(value, sys.modules["torch"].Generator):
                yield value


def longest(dataset: Any, length_fn: Callable[[Any], int]) -> list[int]:
    """Return the indices of a dataset's samples, longest first. Every sample is read once.

    Args:
        dataset: must support ``len()`` and indexing.
        length_fn: returns the length of a sample, such as its number of tokens.

    Raises:
        TypeError: if the dataset, such as a stream, does not support ``len()`` or indexing.

    >>> longest(["a", "abc", "ab"], len)
    [1, 2, 0]
    """
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise TypeError(
            "length_fn needs a dataset with len() and samples by index, got "
            f"{type(dataset).__name__}; leave length_fn out and increase memory_margin"
        )
    lengths = [length_fn(dataset[place]) for place in range(len(dataset))]
    return sorted(range(len(lengths)), key=lambda place: lengths[place], reverse=True)
