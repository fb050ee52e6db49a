"""Counts, ranks and devices of a training of the Trainer, without reading data."""

import itertools
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler, DataLoader
from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]

from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.dashboard import Facts

# ``say`` prints a line without disturbing the progress bar.
say, warn = tqdm.write, logging.getLogger("energy_callbacks").warning

_NO_METRIC = ("epoch", "_runtime", "_per_second", "total_flos", "num_input_tokens_seen")


def run_folder(args: Any) -> Path:
    """Return the run folder beside the checkpoints: ``<output_dir>/energy``."""
    return Path(args.output_dir) / "energy"


def process(args: Any, version: str) -> TrainingProcess:
    """Return the rank of this process."""
    local_world_size = os.environ.get("LOCAL_WORLD_SIZE", "")
    return TrainingProcess(
        framework="huggingface",
        framework_version=version,
        rank=args.process_index,
        local_rank=args.local_process_index,
        world_size=args.world_size,
        local_world_size=(
            int(local_world_size) if local_world_size.isdecimal() else args.world_size
        ),
    )


def used_gpus(args: Any, model: Any) -> tuple[int, ...]:
    """Return the ordinals of the GPUs that this process measures; empty on a CPU.

    The first rank of a host measures the GPUs of all its ranks, because its figures are logged. The
    report counts each GPU once.
    """
    if args.device.type != "cuda":
        return ()
    own = args.device.index or 0
    if args.world_size > 1:
        ranks = process(args, "").local_world_size
        # If each rank sees only one GPU, that is number 0 and the others are invisible.
        seen = min(ranks, torch.cuda.device_count())
        return tuple(range(seen)) if args.local_process_index == 0 and seen > 1 else (own,)
    mapped = _ordinals(getattr(model, "hf_device_map", None) or {})
    return mapped or (tuple(range(args.n_gpu)) if args.n_gpu > 1 else (own,))


def _ordinals(device_map: dict[str, Any]) -> tuple[int, ...]:
    """Return the GPUs of a device map, whose values are ordinals, devices, or ``disk``."""
    found: set[int] = set()
    for place in device_map.values():
        if isinstance(place, int):
            found.add(place)
        elif str(place).startswith("cuda"):
            found.add(torch.device(place).index or 0)
    return tuple(sorted(found))


def samples(
    args: Any, state: Any, loader: Any, micro_batches: int, *, since_step: int
) -> float | None:
    """Return the samples of the last micro-batches on this rank, since the last step.

    All batches are full, except the last one of an epoch if one process draws a known number of
    samples. With several processes Accelerate completes it.
    """
    is_loader = isinstance(loader, DataLoader)
    sampler: Any = loader.batch_sampler if is_loader else None
    # A state from a checkpoint has the batch size of its run; the loader has the current one.
    size = getattr(sampler, "batch_size", None) if is_loader else state.train_batch_size
    if not isinstance(size, int):
        return None
    if isinstance(sampler, BatchSamplerShard) and sampler.split_batches:
        size //= sampler.num_processes
    # TRL's online trainers (GRPO, RLOO) fetch the prompts of several micro-batches at once.
    size //= getattr(args, "steps_per_generation", None) or 1
    missing = 0
    if args.world_size == 1 and type(sampler) is BatchSampler:
        missing = _missing(sampler, size, state.epoch, since_step)
    return micro_batches * size - missing


def _missing(sampler: Any, size: int, epoch: float, since_step: int) -> int:
    """Return how many samples the newest batch lacks, if it is the last of an epoch."""
    try:
        drawn, batches = len(sampler.sampler), len(sampler)
    except TypeError:  # endless: every batch is full
        return 0
    is_last = round(epoch * batches + since_step) % batches == 0
    return -drawn % size if is_last and not sampler.drop_last else 0


def is_training_row(logs: Iterable[str]) -> bool:
    """Whether these are logs of training, not of an evaluation."""
    return "loss" in logs or is_final_row(logs)


def is_final_row(logs: Iterable[str]) -> bool:
    """Whether these are the last logs of ``train``. Users may log a ``train_loss`` too."""
    return all(name in logs for name in ("train_loss", "train_runtime", "total_flos"))


def metrics(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of the model in a row, without the Trainer's durations and counts."""
    return {name: value for name, value in logs.items() if not name.endswith(_NO_METRIC)}


def last_metrics(state: Any) -> dict[str, float]:
    """Return the mean loss of the training, and the metrics of the last evaluation."""
    rows = itertools.chain.from_iterable(row.items() for row in state.log_history)
    return {
        name: float(value)
        for name, value in rows
        if name.startswith(("train_loss", "eval_"))
        and not name.endswith(("_runtime", "_per_second"))
        and isinstance(value, int | float)
    }


def facts(args: Any, state: Any) -> Facts:
    """Return properties that distinguish trainings, from the trainer's arguments and state."""
    return {
        "framework": "huggingface",
        "world_size": args.world_size,
        "batch_size": state.train_batch_size or args.per_device_train_batch_size,
        "accumulation": args.gradient_accumulation_steps,
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
    }
