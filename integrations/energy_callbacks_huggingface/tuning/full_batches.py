"""Yields the Trainer's own batches at the size of a trial, epoch after epoch."""

from collections.abc import Iterator
from typing import Any

from accelerate.data_loader import DataLoaderDispatcher


def full_batches(trainer: Any, size: int) -> Iterator[Any]:
    """Yield whole batches of a new loader of the Trainer, endlessly."""
    loader = trainer.get_train_dataloader()
    # Otherwise ranks exchange the states of their generators at the start of an epoch, but they
    # reach it at different times here.
    loader.rng_types = None
    whole = rows_of(loader, size) // (size * trainer.args.world_size)
    while True:
        for index, batch in enumerate(loader):
            if index < whole:
                yield batch


def rows_of(loader: Any, size: int) -> int:
    """Return how many rows all ranks together draw in an epoch.

    Args:
        loader: the loader of the Trainer.
        size: expected batch size.

    Raises:
        ValueError: if batches have another size.
    """
    sampler = loader.batch_sampler
    is_split = getattr(sampler, "split_batches", False) and sampler.num_processes > 1
    inner = getattr(sampler, "batch_sampler", sampler)
    found = getattr(inner, "batch_size", None)
    if found != size or is_split or isinstance(loader, DataLoaderDispatcher):
        got = "batches that ranks share" if found == size else f"batch_size={found}"
        raise ValueError(
            f"get_train_dataloader must make batches of {size} rows on each rank when "
            f"per_device_train_batch_size is {size}, got {got} from "
            f"{type(inner).__name__}; leave out split_batches, dispatch_batches and samplers that "
            "choose the sizes of batches themselves"
        )
    return len(inner.sampler)
