"""Whole batches of any size from what ``fit`` takes: a short one would be counted as a full one."""

import copy
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import keras

from energy_callbacks_keras import data_sets, loaders


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """What Keras is fed at one batch size.

    Attributes:
        x: arrays, or a data set of batches.
        y: targets, of arrays.
        sample_weight: likewise.
        batch_size: for arrays, which Keras cuts into batches.
        shuffle: whether Keras chooses the order.
        batches: whole ones of a pass over the data; ``None`` where it ends by itself.
    """

    x: Any
    y: Any = None
    sample_weight: Any = None
    batch_size: int | None = None
    shuffle: bool = False
    batches: int | None = None


class Source(Protocol):
    """Training data that can be had in batches of any size.

    Attributes:
        samples: no more than there are; infinite for a stream, ``None`` where nobody knows.
        generators: of random numbers of PyTorch that the data draws from.
    """

    samples: float | None
    generators: tuple[Any, ...]

    def of(self, size: int) -> Fed:
        """Whole batches of so many samples."""
        ...


def source(model: Any, x: Any, y: Any = None, sample_weight: Any = None) -> Source:
    """What is able to hand out batches of any size.

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
    if not (data_sets.is_tf_data(x) or _is_loader(x) or _makes_data(x)):
        return Arrays(x, y, sample_weight)
    if y is not None or sample_weight is not None:
        raise ValueError(
            f"y and sample_weight go with arrays, got x of type {type(x).__name__}; let it give "
            "tuples (inputs, targets, sample weights)"
        )
    if data_sets.is_tf_data(x):
        apart, samples = data_sets.taken_apart(x, model)
        return Made(lambda size: apart.batch(size, drop_remainder=True), samples=samples)
    if isinstance(x, keras.utils.PyDataset):
        return Made(lambda size: _resized(x, size))
    if loaders.is_torch_loader(x):
        return Made(lambda size: loaders.rebuilt(x, size), generators=loaders.generators(x))
    return Made(x)


def _is_loader(x: Any) -> bool:
    return isinstance(x, keras.utils.PyDataset) or loaders.is_torch_loader(x)


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

    generators = ()

    def __init__(self, x: Any, y: Any, sample_weight: Any) -> None:
        self._columns = {"x": x, "y": y, "sample_weight": sample_weight}
        for column in keras.tree.flatten((x, y, sample_weight)):
            if column is not None and not getattr(column, "shape", None):
                raise TypeError(
                    f"x, y and sample_weight must be arrays of samples, got {type(column).__name__}"
                    "; hand arrays, a data set, or a function of the batch size that makes one"
                )
        self.samples: float | None = int(keras.tree.flatten(x)[0].shape[0])

    def of(self, size: int) -> Fed:
        """The same arrays."""
        assert self.samples is not None
        batches = int(self.samples) // size
        return Fed(**self._columns, batch_size=size, shuffle=True, batches=batches)


class Made:
    """A data set that is made anew for each batch size.

    Args:
        make: a ``tf.data.Dataset``, ``PyDataset`` or PyTorch's ``DataLoader`` of a batch size.
        samples: where that is known beforehand.
        generators: of random numbers of PyTorch that it draws from.
    """

    def __init__(
        self,
        make: Callable[[int], Any],
        *,
        samples: float | None = None,
        generators: tuple[Any, ...] = (),
    ) -> None:
        self._make = make
        self.generators = generators
        self.samples = self._counted() if samples is None else samples

    def _counted(self) -> float | None:
        """As many as batches of one."""
        one = self._made(1)
        if data_sets.is_tf_data(one):
            return data_sets.counted(one)
        if isinstance(one, keras.utils.PyDataset):
            return math.inf if one.num_batches is None else one.num_batches
        return loaders.counted(one)

    def of(self, size: int) -> Fed:
        """Its whole batches."""
        made = self._made(size)
        if data_sets.is_tf_data(made):
            return Fed(x=data_sets.whole(made, size))
        if isinstance(made, keras.utils.PyDataset):
            whole = Whole(made, size)
            return Fed(x=whole, shuffle=whole.num_batches is not None, batches=whole.num_batches)
        return Fed(x=made, batches=loaders.whole(made, size))

    def _made(self, size: int) -> Any:
        made = self._make(size)
        if not (data_sets.is_tf_data(made) or _is_loader(made)):
            raise TypeError(
                "x must make a tf.data.Dataset, a keras.utils.PyDataset or a torch DataLoader of "
                f"a batch size, got {type(made).__name__}; arrays are handed as they are"
            )
        return made


def _resized(data: Any, size: int) -> Any:
    if not hasattr(data, "batch_size"):
        raise TypeError(
            "a PyDataset needs an attribute batch_size that can be set, got "
            f"{type(data).__name__} without one; hand a function of the batch size that makes it"
        )
    one = copy.copy(data)
    one.batch_size = size
    return one


class Whole(keras.utils.PyDataset):
    """The whole batches of a data set, which is read and told nothing of epochs.

    Args:
        data: in batches.
        size: of these, but perhaps the last.

    Raises:
        ValueError: where they are of another size.
    """

    def __init__(self, data: Any, size: int) -> None:
        super().__init__(
            workers=data.workers,
            use_multiprocessing=data.use_multiprocessing,
            max_queue_size=data.max_queue_size,
        )
        self._data = data
        self._count: int | None = data.num_batches
        if self._count == 0 or (found := _samples(data[0])) != size:
            got = "none" if self._count == 0 else f"batches of {found}"
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
