"""PyTorch's ``DataLoader`` with another batch size, and the random generators of loaders."""

import copy
import sys
from collections.abc import Iterable, Iterator
from typing import Any


def resized(loader: Any, size: int, *, drop_last: bool) -> Any:
    """Copy a loader with another batch size; everything else is the same.

    Args:
        loader: with a plain ``BatchSampler``.
        size: batch size of the copy.
        drop_last: whether the copy leaves out a last batch that is short.
    """
    resized = copy.copy(loader)
    sampler = type(loader.batch_sampler)(loader.sampler, size, drop_last)
    # DataLoader does not allow to set these, and not all subclasses can be created again from
    # their attributes.
    vars(resized).update(
        batch_size=size, drop_last=drop_last, batch_sampler=sampler, _iterator=None
    )
    return resized


def generators(loaders: Iterable[Any]) -> Iterator[Any]:
    """Yield the random generators that loaders and their samplers hold."""
    for loader in loaders:
        for value in (*vars(loader).values(), *vars(loader.sampler).values()):
            if isinstance(value, sys.modules["torch"].Generator):
                yield value
