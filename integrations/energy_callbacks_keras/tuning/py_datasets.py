"""``keras.utils.PyDataset`` with another batch size, and its whole batches."""

import copy
from typing import Any

import keras


def resized(data: Any, size: int) -> Any:
    """A copy with another batch size.

    Raises:
        TypeError: if it has none.
    """
    if not hasattr(data, "batch_size"):
        raise TypeError(
            "a PyDataset needs an attribute batch_size that can be set, got "
            f"{type(data).__name__} without one; hand a function of the batch size that makes it"
        )
    one = copy.copy(data)
    one.batch_size = size
    return one


class WholeBatches(keras.utils.PyDataset):
    """The whole batches of a data set, which is read without its hooks for epochs.

    Args:
        data: in batches.
        size: of these, but perhaps the last.

    Raises:
        ValueError: if they are of another size.
    """

    def __init__(self, data: Any, size: int) -> None:
        super().__init__(
            workers=data.workers,
            use_multiprocessing=data.use_multiprocessing,
            max_queue_size=data.max_queue_size,
        )
        self._data = data
        self._count: int | None = data.num_batches
        found = 0 if self._count == 0 else _samples(data[0])
        if found != size:
            got = f"batches of {found}" if found else "none"
            raise ValueError(
                f"x must give batches of {size} samples, got {got}; let __getitem__ use its "
                "batch_size, or make max_size smaller"
            )
        if self._count is not None and _samples(data[self._count - 1]) < size:
            self._count -= 1

    @property
    def num_batches(self) -> int | None:
        """Whole ones; ``None`` for a stream."""
        return self._count

    def __getitem__(self, index: int) -> Any:
        """One of them."""
        return self._data[index]


def _samples(batch: Any) -> int:
    return int(keras.tree.flatten(batch)[0].shape[0])
