"""PyTorch's ``DataLoader`` with another batch size."""

import sys
from typing import Any


def is_torch_loader(x: Any) -> bool:
    """Whether it is PyTorch's loader; PyTorch is not imported for it."""
    data = getattr(getattr(sys.modules.get("torch"), "utils", None), "data", None)
    return data is not None and isinstance(x, data.DataLoader)


def rebuilt(loader: Any, size: int) -> Any:
    """The same loader with whole batches of this many samples.

    Raises:
        TypeError: if its batches are the user's own doing.
    """
    data = sys.modules["torch"].utils.data
    if type(loader) is not data.DataLoader or type(loader.batch_sampler) is not data.BatchSampler:
        raise TypeError(
            "x must be a DataLoader with a batch_size and no batch_sampler of its own, got "
            f"{type(loader).__name__} with {type(loader.batch_sampler).__name__}; hand a function "
            "of the batch size that makes it"
        )
    is_stream = isinstance(loader.dataset, data.IterableDataset)
    same = (
        "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn",
        "multiprocessing_context", "generator", "prefetch_factor", "persistent_workers",
    )  # fmt: skip
    return data.DataLoader(
        loader.dataset,
        batch_size=size,
        sampler=None if is_stream else loader.sampler,
        drop_last=True,
        **{name: getattr(loader, name) for name in same},
    )


def generators(x: Any) -> tuple[Any, ...]:
    """Of random numbers, that a loader or its sampler has of its own."""
    if not is_torch_loader(x):
        return ()
    found = {
        id(one): one
        for holder in (x, x.sampler)
        if (one := getattr(holder, "generator", None)) is not None
    }
    return tuple(found.values())


def counted(loader: Any) -> float | None:
    """Samples of a pass; ``None`` if unknown."""
    data = sys.modules["torch"].utils.data
    if isinstance(loader.dataset, data.IterableDataset):
        return None
    return float(len(loader.sampler))


def whole(loader: Any, size: int) -> int | None:
    """Its whole batches; ``None`` if only a pass shows how many these are.

    Raises:
        ValueError: if batches are of another size, or may be short.
    """
    samples = counted(loader)
    if loader.batch_size != size or (samples is None and not loader.drop_last):
        raise ValueError(
            f"x must give batches of {size} samples, got a DataLoader with "
            f"batch_size={loader.batch_size}, drop_last={loader.drop_last}; "
            "use the size that it is told, and drop_last=True with a stream"
        )
    if samples is None and next(iter(loader), None) is None:
        raise ValueError(f"x must give batches of {size} samples, got none; make max_size smaller")
    return None if samples is None else int(samples) // size
