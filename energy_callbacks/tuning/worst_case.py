"""Finds the samples that need the most memory."""

from collections.abc import Callable
from typing import Any


def longest(dataset: Any, length_fn: Callable[[Any], int]) -> list[int]:
    """Return the indices of a dataset's samples, longest first. Every sample is read once.

    Args:
        dataset: with ``len()`` and indexing.
        length_fn: returns the length of a sample, such as its number of tokens.

    Raises:
        TypeError: if the dataset is a stream.

    >>> longest(["a", "abc", "ab"], len)
    [1, 2, 0]
    """
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise TypeError(
            f"length_fn needs a dataset with len() and samples by their place, got "
            f"{type(dataset).__name__}; leave length_fn out and let memory_margin be larger"
        )
    lengths = [length_fn(dataset[place]) for place in range(len(dataset))]
    return sorted(range(len(lengths)), key=lambda place: lengths[place], reverse=True)
