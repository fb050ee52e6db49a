"""Creates a Trainer with the user's function, and checks that its batch size can be changed."""

from typing import Any, Protocol

from torch.utils.data import IterableDataset
from transformers import Trainer


class TrainerFactory(Protocol):
    """Function that creates a Trainer and passes both arguments on to ``TrainingArguments``."""

    def __call__(
        self, *, per_device_train_batch_size: int, gradient_accumulation_steps: int
    ) -> Any:
        """Return a Trainer that has not trained yet."""


def create(factory: TrainerFactory, size: int, accumulation: int) -> Any:
    """Create a Trainer with a batch size, and check that the size can be changed.

    Args:
        factory: the user's function.
        size: samples per micro-batch on each device.
        accumulation: micro-batches per optimizer step.

    Raises:
        TypeError: if ``factory`` is not callable, or does not return a Trainer.
        ValueError: if the Trainer does not use these values, or its batch size cannot be changed.
    """
    if not callable(factory):
        raise TypeError(
            "tune_batch_size takes a function that makes a Trainer, because one that is made keeps "
            f"its batch size, got {type(factory).__name__}; see its documentation for an example"
        )
    asked = {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulation}
    trainer = factory(**asked)
    if not isinstance(trainer, Trainer):
        raise TypeError(
            f"trainer_factory must return a Trainer, got {type(trainer).__name__}; has it a return?"
        )
    for name, value in asked.items():
        if (found := getattr(trainer.args, name)) != value:
            raise ValueError(
                f"trainer_factory was called with {name}={value}, and the TrainingArguments of its "
                f"Trainer have {found}; hand on what it is called with, else the size that is "
                "found would have no effect (an accumulation is chosen by global_batch_size=)"
            )
    _check_training(trainer)
    _check_dataset(trainer.train_dataset)
    return trainer


def _check_training(trainer: Any) -> None:
    """Check that ranks can run independently, and that only the search changes the batch size.

    Raises:
        ValueError: if ranks depend on each other, if a process splits its batches among several
            GPUs, or if the Trainer itself changes the batch size.
    """
    args, kind = trainer.args, trainer.accelerator.distributed_type.value
    if args.auto_find_batch_size:
        raise ValueError(
            "auto_find_batch_size=True would lower the size that is found again while training, "
            "without more accumulation; leave it out"
        )
    if args.n_gpu > 1:
        raise ValueError(
            f"one process with {args.n_gpu} GPUs (DataParallel) shares each batch among them; "
            "start it with torchrun, or let it see one GPU by CUDA_VISIBLE_DEVICES"
        )
    is_sharded = getattr(trainer, "is_distributed_loading_by_transformers", False)
    if is_sharded or not (kind == "NO" or kind.startswith("MULTI_")):
        raise ValueError(
            "ranks that share one model can only step together, and one that runs out of memory "
            f"would leave the others waiting, got {'a sharded model' if is_sharded else kind}; "
            "batch sizes can be searched for on one device and with DistributedDataParallel"
        )
    if args.world_size > 1 and args.torch_compile:
        raise ValueError(
            "torch_compile=True on several ranks compiles their exchange of gradients as well; "
            "search for the batch size in one process"
        )


def _check_dataset(dataset: Any) -> None:
    """Check that a dataset is not a stream: trials and training must be able to read the same rows.

    Raises:
        ValueError: for an ``IterableDataset``, or a dataset without ``len()`` or indexing.
    """
    is_stream = isinstance(dataset, IterableDataset)
    if is_stream or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise ValueError(
            "train_dataset must have len() and rows by their place while a batch size is searched "
            f"for, got {type(dataset).__name__}; search with some rows of it, such as "
            "list(itertools.islice(stream, 4096))"
        )
