"""Reads sample counts, metrics, ranks and GPUs from the Trainer, without fetching data."""

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler, DataLoader
from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]

from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.core.guard import logger
from energy_callbacks.dashboard import Facts
from energy_callbacks.sensing.frameworks.device_names import device_names

# ``say`` prints a line without disturbing the progress bar.
say, warn = tqdm.write, logger.warning

# Names in the last row of ``train``.
_FINAL = {"train_loss", "train_runtime", "total_flos"}
# A value in the logs is not a metric of the model if its name ends with one of these.
_NO_METRIC = ("epoch", "_runtime", "_per_second", "total_flos", "num_input_tokens_seen")


def run_folder(args: Any) -> Path:
    """Return the default run folder, which is next to the checkpoints: ``<output_dir>/energy``."""
    return Path(args.output_dir) / "energy"


def process(args: Any, version: str) -> TrainingProcess:
    """Return framework, ranks and world sizes of this process.

    Args:
        args: ``TrainingArguments`` of the trainer.
        version: version of transformers.
    """
    on_host = os.environ.get("LOCAL_WORLD_SIZE", "")
    return TrainingProcess(
        framework="huggingface",
        framework_version=version,
        rank=args.process_index,
        local_rank=args.local_process_index,
        world_size=args.world_size,
        local_world_size=int(on_host) if on_host.isdecimal() else args.world_size,
    )


def used_gpus(args: Any, model: Any) -> tuple[int | str, ...]:
    """Return the GPUs that this process measures, as ``device_names`` does; empty on a CPU.

    The first rank of a host also measures the GPUs of the host's other ranks, if these GPUs are
    visible to it. Without them, the figures that rank 0 logs would cover a single GPU. The report
    counts a GPU once, even if two ranks measure it.
    """
    kind: str = args.device.type
    return device_names(kind, _used_ordinals(args, model)) if device_names(kind, [0]) else ()


def _used_ordinals(args: Any, model: Any) -> tuple[int, ...]:
    own, kind = args.device.index or 0, args.device.type
    if args.world_size > 1:
        ranks = process(args, "").local_world_size
        # If each rank sees only its own GPU, that GPU has ordinal 0 in every rank.
        seen = min(ranks, getattr(torch, kind).device_count())
        return tuple(range(seen)) if args.local_process_index == 0 and seen > 1 else (own,)
    mapped = _ordinals(getattr(model, "hf_device_map", None) or {}, kind)
    return mapped or (tuple(range(args.n_gpu)) if args.n_gpu > 1 else (own,))


def _ordinals(device_map: dict[str, Any], kind: str) -> tuple[int, ...]:
    """Return the ordinals of the GPUs in a device map, which maps layers to ordinals or devices."""
    found: set[int] = set()
    for place in device_map.values():
        if isinstance(place, int):
            found.add(place)
        elif str(place).startswith(kind):
            found.add(torch.device(place).index or 0)
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches that this rank draws in an epoch.

    All batches count as full, except the last one of an epoch if there is a single process and the
    length of the sampler is known. With several processes, Accelerate fills up the last batch with
    samples from the start of the epoch.

    Attributes:
        size: number of samples in a full batch; ``None`` if unknown.
        count: number of batches in an epoch; 0 if the last batch counts as full.
        missing: number of samples that the last batch lacks.
    """

    size: int | None
    count: int = 0
    missing: int = 0

    @classmethod
    def of(cls, args: Any, state: Any, loader: Any) -> Self:
        """Read the batches of the training loader.

        Args:
            args: ``TrainingArguments`` of the trainer.
            state: ``TrainerState`` of the trainer.
            loader: the training loader; if it is no ``DataLoader``, ``state`` gives the batch size.
        """
        is_loader = isinstance(loader, DataLoader)
        sampler: Any = loader.batch_sampler if is_loader else None
        # In a resumed training, ``state`` has the batch size of the checkpoint. The loader has the
        # current batch size.
        size = getattr(sampler, "batch_size", None) if is_loader else state.train_batch_size
        if not isinstance(size, int):
            return cls(None)
        if isinstance(sampler, BatchSamplerShard) and sampler.split_batches:
            size //= sampler.num_processes
        # Online trainers of the library TRL (GRPO, RLOO) fetch prompts for several micro-batches at
        # once.
        size //= getattr(args, "steps_per_generation", None) or 1
        is_known = args.world_size == 1 and type(sampler) is BatchSampler
        if not is_known or sampler.drop_last:
            return cls(size)
        try:
            samples: Any = sampler.sampler
            drawn, count = len(samples), len(sampler)
        except TypeError:  # a stream has no length: every batch counts as full
            return cls(size)
        missing = -drawn % size
        return cls(size, count if missing else 0, missing)

    def samples(self, batches: int, epoch: float, since_step: int) -> int | None:
        """Return the number of samples in the newest batches; ``None`` if unknown.

        Args:
            batches: number of batches, up to the newest one.
            epoch: ``TrainerState.epoch``.
            since_step: number of batches that ``epoch`` does not include yet: those since the last
                optimizer step.
        """
        if self.size is None:
            return None
        full = batches * self.size
        if self.count and round(epoch * self.count + since_step) % self.count == 0:
            return full - self.missing
        return full


def is_training_row(logs: Mapping[str, Any]) -> bool:
    """Return whether the logs describe training, not an evaluation."""
    return "loss" in logs or is_final_row(logs)


def is_final_row(logs: Mapping[str, Any]) -> bool:
    """Return whether the logs are the last row of ``train``.

    ``train_loss`` alone does not show this, because users may log it too.
    """
    return logs.keys() >= _FINAL


def metrics(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of the model in a row of logs, without epoch, durations and counts."""
    return {name: value for name, value in logs.items() if not name.endswith(_NO_METRIC)}


def last_metrics(state: Any) -> dict[str, float]:
    """Return the mean loss of the training, and the last value of each evaluation metric."""
    rows = itertools.chain.from_iterable(row.items() for row in state.log_history)
    return {
        name: float(value)
        for name, value in rows
        if name.startswith(("train_loss", "eval_"))
        and not name.endswith(("_runtime", "_per_second"))
        and isinstance(value, int | float)
    }


def facts(args: Any, state: Any) -> Facts:
    """Return hyperparameters by name, which TensorBoard shows to compare trainings."""
    return {
        "framework": "huggingface",
        "world_size": args.world_size,
        "batch_size": state.train_batch_size or args.per_device_train_batch_size,
        "accumulation": args.gradient_accumulation_steps,
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
    }
