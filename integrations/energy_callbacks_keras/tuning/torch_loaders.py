"""Creates batches of any size from PyTorch's ``DataLoader``."""

import sys
from typing import Any

from energy_callbacks.tuning import torch_loaders


def is_kind(x: Any) -> bool:
    """Return whether ``x`` is a ``DataLoader``, without importing PyTorch."""
    data = getattr(getattr(sys.modules.get("torch"), "utils", None), "data", None)
    return data is not None and isinstance(x, data.DataLoader)


def resized(loader: Any, size: int) -> Any:
    """Return a copy of a loader that yields whole batches of another size.

    Raises:
        TypeError: for a subclass of ``DataLoader``, or a loader with the user's own
            ``batch_sampler`` or without a batch size.
    """
    data = sys.modules["torch"].utils.data
    if type(loader) is not data.DataLoader or type(loader.batch_sampler) is not data.BatchSampler:
        raise TypeError(
            "x must be a DataLoader with a batch_size and no batch_sampler, got "
            f"{type(loader).__name__} with {type(loader.batch_sampler).__name__}; pass a "
            "function that creates it for a batch size"
        )
    return torch_loaders.resized(loader, size, drop_last=True)


def counted(loader: Any) -> float | None:
    """Return the number of samples per pass; ``None`` if unknown."""
    if isinstance(loader.dataset, sys.modules["torch"].utils.data.IterableDataset):
        return None
    return float(len(loader.sampler))


def whole_batches(loader: Any, size: int) -> tuple[dict[str, Any], int | None]:
    """Return (arguments for Keras' ``EpochIterator``, number of whole batches per pass).

    The number is ``None`` if unknown.

    Raises:
        ValueError: if batches have another size; for a stream, also if it has no batch, or if its
            last batch may be incomplete.
    """
    samples = counted(loader)
    if loader.batch_size != size or (samples is None and not loader.drop_last):
        raise ValueError(
            f"x must give batches of {size} samples, got a DataLoader with "
            f"batch_size={loader.batch_size}, drop_last={loader.drop_last}; use the size that "
            "the function receives, and drop_last=True for a stream"
        )
    if samples is None and next(iter(loader), None) is None:
        raise ValueError(f"x must give batches of {size} samples, got none; make max_size smaller")
    return {"x": loader}, None if samples is None else int(samples) // size
