"""Creates whole batches of any size from the data that ``fit`` takes.

A whole batch has exactly the requested number of samples. A pass is one iteration over the data.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras

from energy_callbacks_keras.tuning import py_datasets, tf_data, torch_loaders

Batches = tuple[dict[str, Any], int | None]


@dataclass(frozen=True, slots=True)
class BatchSource:
    """Training data that is available in batches of any size.

    Attributes:
        samples: a lower bound of the number of samples; infinite for data without end, ``None`` if
            unknown.
        of: called with a batch size; returns (arguments for Keras' ``EpochIterator``, number of
            whole batches per pass). The number is ``None`` if unknown or infinite. If it is known,
            an incomplete batch may follow the whole batches. Raises ``ValueError`` if the batches
            of the data do not have that size.
    """

    samples: float | None
    of: Callable[[int], Batches]


def source(model: Any, x: Any, y: Any = None, sample_weight: Any = None) -> BatchSource:
    """Create a source of batches of any size.

    Args:
        model: the model that is trained.
        x: argument of ``fit``, or a function that returns a data set for a batch size.
        y: argument of ``fit``; ``None`` unless ``x`` contains arrays.
        sample_weight: argument of ``fit``; ``None`` unless ``x`` contains arrays.

    Raises:
        TypeError: for data that does not support another batch size.
        ValueError: for ``y`` or ``sample_weight`` if ``x`` contains no arrays, or if shapes do not
            show whether the elements of a ``tf.data.Dataset`` are samples or batches.
    """
    if isinstance(x, Iterator):
        raise TypeError(
            f"x must give batches of any size repeatedly, got {type(x).__name__}; pass arrays, "
            "a data set, or a function that creates one for a batch size"
        )
    kind = _kind(x)
    if kind is None and not _is_function(x):
        return _arrays(x, y, sample_weight)
    if y is not None or sample_weight is not None:
        raise ValueError(
            f"y and sample_weight are for arrays only, got x of type {type(x).__name__}; let x "
            "give tuples (inputs, targets, sample weights)"
        )
    if kind is tf_data:
        data, samples = tf_data.unbatched(x, model)
        return _rebuilt(lambda size: data.batch(size, drop_remainder=True), samples)
    return _rebuilt(x if kind is None else partial(kind.resized, x))


def _kind(x: Any) -> Any:
    """Return the module that handles this kind of data set; ``None`` for other data."""
    kinds = (tf_data, py_datasets, torch_loaders)
    return next((kind for kind in kinds if kind.is_kind(x)), None)


def _is_function(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return callable(x) and not (torch is not None and isinstance(x, torch.Tensor))


def _arrays(x: Any, y: Any, sample_weight: Any) -> BatchSource:
    """Return a source of batches from arrays or tensors, or from lists or dicts of them.

    Keras shuffles the samples and splits them into batches.
    """
    others = [one for one in keras.tree.flatten((y, sample_weight)) if one is not None]
    for column in [*(keras.tree.flatten(x) or [x]), *others]:
        if len(getattr(column, "shape", ())) == 0:
            raise TypeError(
                "x, y and sample_weight must be arrays of samples, got "
                f"{type(column).__name__}; pass arrays, a data set, or a function that creates "
                "one for a batch size"
            )
    columns = {"x": x, "y": y, "sample_weight": sample_weight, "shuffle": True}
    count = py_datasets.first_dimension(x)
    return BatchSource(count, lambda size: (columns | {"batch_size": size}, count // size))


def _rebuilt(make: Callable[[int], Any], samples: float | None = None) -> BatchSource:
    """Return a source that creates a new data set for each batch size.

    Args:
        make: returns a ``tf.data.Dataset``, ``PyDataset`` or ``DataLoader`` for a batch size.
        samples: lower bound of the number of samples; with ``None``, the batches of a data set
            with one sample per batch are counted.
    """

    def made(size: int) -> tuple[Any, Any]:
        data = make(size)
        if (kind := _kind(data)) is None:
            raise TypeError(
                "x must return a tf.data.Dataset, a keras.utils.PyDataset or a torch DataLoader "
                f"for a batch size, got {type(data).__name__}; pass arrays directly"
            )
        return kind, data

    def of(size: int) -> Batches:
        kind, data = made(size)
        batches: Batches = kind.whole_batches(data, size)
        return batches

    if samples is None:
        kind, data = made(1)
        samples = kind.counted(data)
    return BatchSource(samples, of)
