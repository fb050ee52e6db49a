"""Whole batches of any size from what ``fit`` takes."""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import keras

from energy_callbacks_keras.tuning import py_datasets, tf_data, torch_loaders


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedInput:
    """The input of Keras at one batch size.

    Attributes:
        x: arrays, or a data set of batches.
        y: targets, if ``x`` is arrays.
        sample_weight: weights of the samples, if ``x`` is arrays.
        batch_size: for arrays, which Keras cuts into batches.
        shuffle: whether Keras chooses the order.
        batches: whole ones of a pass over the data; ``None`` if it ends by itself.
    """

    x: Any
    y: Any = None
    sample_weight: Any = None
    batch_size: int | None = None
    shuffle: bool = False
    batches: int | None = None


class BatchSource(Protocol):
    """Training data that can be had in batches of any size.

    Attributes:
        samples: no more than there are; infinite for a stream, ``None`` if unknown.
    """

    samples: float | None

    def of(self, size: int) -> SizedInput:
        """Whole batches of this many samples."""
        ...


def source(model: Any, x: Any, y: Any = None, sample_weight: Any = None) -> BatchSource:
    """Makes batches of any size from the data.

    Args:
        model: that is trained on them.
        x: as ``fit`` takes it, or what makes a data set of a batch size.
        y: as ``fit`` takes it.
        sample_weight: as ``fit`` takes it.

    Raises:
        TypeError: for data that cannot be had in another batch size.
        ValueError: for data whose batches are not of the size that was asked for.
    """
    if isinstance(x, Iterator):
        raise TypeError(
            f"x must give batches of any size, again and again, got {type(x).__name__}; hand the "
            "arrays, the data set, or a function of the batch size that makes one"
        )
    if not (tf_data.is_tf_data(x) or _is_loader(x) or _makes_data(x)):
        return Arrays(x, y, sample_weight)
    if y is not None or sample_weight is not None:
        raise ValueError(
            f"y and sample_weight go with arrays, got x of type {type(x).__name__}; let it give "
            "tuples (inputs, targets, sample weights)"
        )
    if tf_data.is_tf_data(x):
        apart, samples = tf_data.taken_apart(x, model)
        return RebuiltSource(lambda size: apart.batch(size, drop_remainder=True), samples=samples)
    if isinstance(x, keras.utils.PyDataset):
        return RebuiltSource(lambda size: py_datasets.resized(x, size))
    if torch_loaders.is_torch_loader(x):
        return RebuiltSource(lambda size: torch_loaders.rebuilt(x, size))
    return RebuiltSource(x)


def _is_loader(x: Any) -> bool:
    return isinstance(x, keras.utils.PyDataset) or torch_loaders.is_torch_loader(x)


def _makes_data(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return callable(x) and not (torch is not None and isinstance(x, torch.Tensor))


class Arrays:
    """Arrays and tensors, alone or in lists and dictionaries; Keras shuffles and cuts them.

    Args:
        x: inputs.
        y: targets.
        sample_weight: of each sample.
    """

    def __init__(self, x: Any, y: Any, sample_weight: Any) -> None:
        self._columns = {"x": x, "y": y, "sample_weight": sample_weight}
        for column in keras.tree.flatten((x, y, sample_weight)):
            if column is not None and not getattr(column, "shape", None):
                raise TypeError(
                    f"x, y and sample_weight must be arrays of samples, got {type(column).__name__}"
                    "; hand arrays, a data set, or a function of the batch size that makes one"
                )
        self.samples: float | None = int(keras.tree.flatten(x)[0].shape[0])

    def of(self, size: int) -> SizedInput:
        """The same arrays."""
        assert self.samples is not None
        batches = int(self.samples) // size
        return SizedInput(**self._columns, batch_size=size, shuffle=True, batches=batches)


class RebuiltSource:
    """A data set that is made anew for each batch size.

    Args:
        make: a ``tf.data.Dataset``, ``PyDataset`` or PyTorch's ``DataLoader`` of a batch size.
        samples: if that is known beforehand.
    """

    def __init__(self, make: Callable[[int], Any], *, samples: float | None = None) -> None:
        self._make = make
        self.samples = self._counted() if samples is None else samples

    def _counted(self) -> float | None:
        """As many as batches of one."""
        one = self._made(1)
        if tf_data.is_tf_data(one):
            return tf_data.counted(one)
        if isinstance(one, keras.utils.PyDataset):
            return math.inf if one.num_batches is None else one.num_batches
        return torch_loaders.counted(one)

    def of(self, size: int) -> SizedInput:
        """Its whole batches."""
        made = self._made(size)
        if tf_data.is_tf_data(made):
            return SizedInput(x=tf_data.whole(made, size))
        if isinstance(made, keras.utils.PyDataset):
            whole = py_datasets.WholeBatches(made, size)
            return SizedInput(
                x=whole, shuffle=whole.num_batches is not None, batches=whole.num_batches
            )
        return SizedInput(x=made, batches=torch_loaders.whole(made, size))

    def _made(self, size: int) -> Any:
        made = self._make(size)
        if not (tf_data.is_tf_data(made) or _is_loader(made)):
            raise TypeError(
                "x must make a tf.data.Dataset, a keras.utils.PyDataset or a torch DataLoader of "
                f"a batch size, got {type(made).__name__}; arrays are handed as they are"
            )
        return made
