"""``tf.data``: its samples, their number, and whole batches."""

import math
import sys
from typing import Any

import keras


def is_tf_data(x: Any) -> bool:
    """Whether it is a ``tf.data.Dataset``; TensorFlow is not imported for it."""
    data = getattr(sys.modules.get("tensorflow"), "data", None)
    return data is not None and isinstance(x, data.Dataset)


def counted(data: Any) -> float | None:
    """Elements: infinite for a stream, ``None`` if unknown."""
    tensorflow = sys.modules["tensorflow"]
    count = int(data.cardinality())
    if count == tensorflow.data.INFINITE_CARDINALITY:
        return math.inf
    return None if count == tensorflow.data.UNKNOWN_CARDINALITY else float(count)


def taken_apart(data: Any, model: Any) -> tuple[Any, float | None]:
    """Samples, and how many these are at least.

    Args:
        data: of samples, or of batches of them.
        model: whose inputs decide which.
    """
    if not _is_batched(data, model):
        return data, counted(data)
    batches = counted(data)
    size = _leading(data)
    if size is None:
        first = next(iter(data), None)
        size = 0 if first is None else int(keras.tree.flatten(first)[0].shape[0])
    # The last batch may be a short one.
    samples = None if batches is None else size * max(batches - 1, min(batches, 1))
    return data.unbatch(), samples


def _is_batched(data: Any, model: Any) -> bool:
    """Whether its elements have one dimension more than samples.

    Raises:
        ValueError: if they may be either.
    """
    shapes = [spec.shape for spec in keras.tree.flatten(data.element_spec)]
    if any(shape.rank == 0 for shape in shapes):
        return False
    inputs = keras.tree.flatten(getattr(model, "inputs", None) or [])
    if inputs and shapes[0].rank is not None:
        return bool(shapes[0].rank >= len(inputs[0].shape))
    leading = {None if shape.rank is None else shape[0] for shape in shapes}
    if len(leading) > 1:
        return False
    if leading == {None}:
        return True
    raise ValueError(
        "x must be a data set of samples, got one whose elements may be samples or batches: "
        f"{data.element_spec}; hand a function of the batch size, "
        "lambda size: samples.batch(size)"
    )


def _leading(data: Any) -> int | None:
    """First dimension of an element, if that is fixed."""
    shape = keras.tree.flatten(data.element_spec)[0].shape
    return shape[0] if shape.rank else None


def whole(data: Any, size: int) -> Any:
    """Its whole batches, over and over.

    Args:
        data: of batches.
        size: of these, but perhaps the last.

    Raises:
        ValueError: if they are of another size.
    """
    tensorflow = sys.modules["tensorflow"]
    fixed = _leading(data)
    if fixed is None:
        first = next(iter(data.take(1)), None)
        found = 0 if first is None else int(keras.tree.flatten(first)[0].shape[0])
    else:
        found = fixed
    if found != size or counted(data) == 0:
        raise ValueError(
            f"x must give batches of {size} samples, got "
            f"{f'batches of {found}' if found not in (0, size) else 'none'}; use the size that it "
            "is told, or make max_size smaller"
        )
    if fixed is None:
        data = data.filter(lambda *batch: tensorflow.shape(keras.tree.flatten(batch)[0])[0] == size)
    return data.repeat().prefetch(tensorflow.data.AUTOTUNE)
