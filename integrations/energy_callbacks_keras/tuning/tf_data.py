"""Creates batches of any size from a ``tf.data.Dataset``."""

import math
import sys
from typing import Any

import keras

from energy_callbacks_keras.tuning.py_datasets import first_dimension


def is_kind(x: Any) -> bool:
    """Return whether ``x`` is a ``tf.data.Dataset``, without importing TensorFlow."""
    data = getattr(sys.modules.get("tensorflow"), "data", None)
    return data is not None and isinstance(x, data.Dataset)


def counted(data: Any) -> float | None:
    """Return the number of elements: infinite for data without end, ``None`` if unknown."""
    tensorflow = sys.modules["tensorflow"]
    count = int(data.cardinality())
    if count == tensorflow.data.INFINITE_CARDINALITY:
        return math.inf
    return None if count == tensorflow.data.UNKNOWN_CARDINALITY else float(count)


def unbatched(data: Any, model: Any) -> tuple[Any, float | None]:
    """Return a data set of single samples, and a lower bound of their number.

    The number is infinite for data without end, and ``None`` if unknown.

    Args:
        data: a data set of samples or of batches.
        model: the model; the shapes of its inputs distinguish samples from batches.
    """
    if not _is_batched(data, model):
        return data, counted(data)
    batches = counted(data)
    size = _batch_size(data)
    # The last batch may be incomplete.
    samples = None if batches is None else size * max(batches - 1, min(batches, 1))
    return data.unbatch(), samples


def _is_batched(data: Any, model: Any) -> bool:
    """Return whether the elements of a data set are batches, not samples.

    Raises:
        ValueError: if the shapes do not show whether the elements are batches.
    """
    shapes = [spec.shape for spec in keras.tree.flatten(data.element_spec)]
    if any(shape.rank == 0 for shape in shapes):
        return False
    inputs = keras.tree.flatten(getattr(model, "inputs", None) or [])
    shape, expected = _of_one_input(data, inputs) if inputs else (shapes[0], None)
    if expected is not None and shape.rank is not None:
        # Keras appends a dimension of 1 to batches that lack it.
        is_short = shape.rank == len(expected) - 1 and expected[-1] == 1 != shape[-1]
        return bool(shape.rank >= len(expected) or is_short)
    leading = {None if shape.rank is None else shape[0] for shape in shapes}
    if len(leading) > 1:
        return False
    if leading == {None}:
        return True
    raise ValueError(
        "x must be a data set of samples, got one whose elements may be samples or batches: "
        f"{data.element_spec}; pass a function of the batch size, lambda size: "
        "samples.batch(size)"
    )


def _of_one_input(data: Any, inputs: list[Any]) -> tuple[Any, Any]:
    """Return the shape of one input in the elements of a data set, and that of its batches.

    A dictionary may have another order than the model, so its input is found by name.
    """
    x = keras.utils.unpack_x_y_sample_weight(data.element_spec)[0]
    for one in inputs:
        if isinstance(x, dict) and one.name in x:
            return x[one.name].shape, one.shape
    return keras.tree.flatten(x)[0].shape, inputs[0].shape


def _fixed_size(data: Any) -> int | None:
    """Return the first dimension of the elements; ``None`` if it varies or is unknown."""
    shape = keras.tree.flatten(data.element_spec)[0].shape
    return shape[0] if shape.rank else None


def _batch_size(data: Any) -> int:
    """Return the first dimension of the elements.

    If it is not fixed, return that of the first element, or 0 if there is no element.
    """
    if (fixed := _fixed_size(data)) is not None:
        return fixed
    first = next(iter(data.take(1)), None)
    return 0 if first is None else first_dimension(first)


def whole_batches(data: Any, size: int) -> tuple[dict[str, Any], None]:
    """Return (arguments for Keras' ``EpochIterator``, ``None``).

    The whole batches are repeated without end, so their number per pass is ``None``.

    Args:
        data: a data set of batches.
        size: samples per batch; only the last batch of ``data`` may be smaller.

    Raises:
        ValueError: if the first batch has another size, or there is no batch.
    """
    tensorflow = sys.modules["tensorflow"]
    found = _batch_size(data)
    if found != size or counted(data) == 0:
        raise ValueError(
            f"x must give batches of {size} samples, got "
            f"{f'batches of {found}' if found not in (0, size) else 'none'}; use the size that "
            "the function receives, or make max_size smaller"
        )
    if _fixed_size(data) is None:
        data = data.filter(lambda *batch: tensorflow.shape(keras.tree.flatten(batch)[0])[0] == size)
    return {"x": data.repeat().prefetch(tensorflow.data.AUTOTUNE)}, None
