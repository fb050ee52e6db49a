"""Creates batches of any size from a ``keras.utils.PyDataset``."""

import copy
import math
from typing import Any

import keras


def is_kind(x: Any) -> bool:
    """Return whether ``x`` is a ``PyDataset``."""
    return isinstance(x, keras.utils.PyDataset)


def resized(data: Any, size: int) -> Any:
    """Return a copy of a data set with another batch size.

    Raises:
        TypeError: if the data set has no attribute ``batch_size`` that can be set.
    """
    resized = copy.copy(data)
    try:
        _ = resized.batch_size  # must exist: the assignment would create it
        resized.batch_size = size
    except AttributeError as error:
        raise TypeError(
            f"a PyDataset needs an attribute batch_size that can be set, got {error}; pass a "
            "function that creates it for a batch size"
        ) from error
    return resized


def counted(data: Any) -> float:
    """Return the number of batches per pass; infinite for a stream."""
    return math.inf if data.num_batches is None else float(data.num_batches)


def whole_batches(data: Any, size: int) -> tuple[dict[str, Any], int | None]:
    """Return (arguments for Keras' ``EpochIterator``, number of whole batches per pass).

    The number is ``None`` for a stream.

    Args:
        data: a data set of batches.
        size: samples per batch; only the last batch of ``data`` may be smaller.

    Raises:
        ValueError: if the first batch has another size, or there is no batch.
    """
    batches = WholeBatches(data, size)
    return {"x": batches, "shuffle": batches.num_batches is not None}, batches.num_batches


class WholeBatches(keras.utils.PyDataset):
    """Contains the whole batches of a user's data set, whose epoch hooks are not called.

    Args:
        data: the data set of the user.
        size: samples per batch; only the last batch of ``data`` may be smaller.

    Raises:
        ValueError: if the first batch has another size, or there is no batch.
    """

    def __init__(self, data: Any, size: int) -> None:
        super().__init__(
            workers=data.workers,
            use_multiprocessing=data.use_multiprocessing,
            max_queue_size=data.max_queue_size,
        )
        self._data = data
        self._count: int | None = data.num_batches
        found = 0 if self._count == 0 else first_dimension(data[0])
        if found != size:
            got = f"batches of {found}" if found else "none"
            raise ValueError(
                f"x must give batches of {size} samples, got {got}; let __getitem__ use its "
                "batch_size, or make max_size smaller"
            )
        if self._count is not None and first_dimension(data[self._count - 1]) < size:
            self._count -= 1

    @property
    def num_batches(self) -> int | None:
        """Number of whole batches; ``None`` for a stream."""
        return self._count

    def __getitem__(self, index: int) -> Any:
        """Return the batch with this index."""
        return self._data[index]


def first_dimension(batch: Any) -> int:
    """Return the number of samples in a batch, from the shape of its first array."""
    return int(keras.tree.flatten(batch)[0].shape[0])
