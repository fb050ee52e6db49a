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
            "tune_batch_size needs a function that creates a Trainer, because an existing "
            f"Trainer keeps its batch size, got {type(factory).__name__}; see its documentation "
            "for an example"
        )
    asked = {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulation}
    trainer = factory(**asked)
    if not isinstance(trainer, Trainer):
        raise TypeError(
            f"trainer_factory must return a Trainer, got {type(trainer).__name__}; check its "
            "return statement"
        )
    for name, value in asked.items():
        if (found := getattr(trainer.args, name)) != value:
            raise ValueError(
                f"trainer_factory was called with {name}={value}, but the TrainingArguments of "
                f"its Trainer have {found}; pass on the arguments of the call, otherwise the "
                "size that is found has no effect (to choose the accumulation, use "
                "global_batch_size=)"
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
            "auto_find_batch_size=True could lower the size that is found again during the "
            "training, without more accumulation; leave it out"
        )
    if args.n_gpu > 1:
        raise ValueError(
            f"one process with {args.n_gpu} GPUs (DataParallel) divides each batch among them; "
            "start it with torchrun, or make only one GPU visible with CUDA_VISIBLE_DEVICES"
        )
    is_sharded = getattr(trainer, "is_distributed_loading_by_transformers", False)
    if is_sharded or not (kind == "NO" or kind.startswith("MULTI_")):
        raise ValueError(
            "the batch size can be searched for on one device or with DistributedDataParallel, "
            f"got {'a sharded model' if is_sharded else kind}; ranks that share one model step "
            "together, so if one runs out of memory, the others wait forever"
        )
    if args.world_size > 1 and args.torch_compile:
        raise ValueError(
            "torch_compile=True on several ranks also compiles their exchange of gradients; "
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
            "train_dataset must have len() and rows by index while a batch size is searched "
            f"for, got {type(dataset).__name__}; search with some of its rows, such as "
            "list(itertools.islice(stream, 4096))"
        )
