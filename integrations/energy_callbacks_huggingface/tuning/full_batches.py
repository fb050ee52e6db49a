"""Yields the Trainer's own batches at the size of a trial, epoch after epoch."""

from collections.abc import Iterator
from typing import Any

from accelerate.data_loader import DataLoaderDispatcher


class FullBatches:
    """Whole batches of the Trainer's loader, which is created again for each size.

    Args:
        trainer: prepared for training.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._size: int | None = None
        self._batches: Iterator[Any] | None = None

    def of(self, size: int) -> Iterator[Any]:
        """Return an endless iterator; a further call with the same size continues it."""
        if self._batches is None or self._size != size:
            self.close()
            self._size, self._batches = size, self._endless(size)
        return self._batches

    def _endless(self, size: int) -> Iterator[Any]:
        loader = self._trainer.get_train_dataloader()
        # Otherwise ranks exchange the states of their generators at the start of an epoch, but
        # they reach it at different times here.
        loader.rng_types = None
        whole = rows_of(loader, size) // (size * self._trainer.args.world_size)
        while True:
            for place, batch in enumerate(loader):
                if place < whole:
                    yield batch

    def close(self) -> None:
        """Release the loader and its workers."""
        self._size = self._batches = None
        # Accelerate keeps references to all loaders that it has prepared.
        self._trainer.accelerator._dataloaders.clear()  # noqa: SLF001


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
