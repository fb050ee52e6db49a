"""Trains a small GPT-2 on the text of Python's manual, byte by byte, with Hugging Face."""

from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import accelerate  # noqa: F401 - Trainer needs it; without it, this import fails
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from energy_callbacks.cli.demos import new_folder
from energy_callbacks.huggingface import GpuEnergyCallback

# Length of a sequence, in bytes.
SEQUENCE = 128


def language_model() -> Any:
    """Return a GPT-2 with two layers and 261,000 parameters; a token is one of 256 byte values."""
    config = GPT2Config(
        vocab_size=256,
        n_positions=SEQUENCE,
        n_embd=96,
        n_layer=2,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def sequences() -> tuple[list[dict[str, torch.Tensor]], list[dict[str, torch.Tensor]]]:
    """Return the sequences for training, and for evaluation (the last tenth of the text)."""
    text = bytearray("\n".join(topics.values()).encode())
    rows = torch.frombuffer(text, dtype=torch.uint8).long()
    rows = rows[: len(rows) // SEQUENCE * SEQUENCE].view(-1, SEQUENCE)
    examples = [{"input_ids": row, "labels": row} for row in rows]
    held_out = len(examples) // 10
    return examples[:-held_out], examples[-held_out:]


def train(root: Path, epochs: int, settings: dict[str, Any]) -> Path:
    """Train a ``language_model`` with ``GpuEnergyCallback``.

    Args:
        root: folder in which each training creates its own folder.
        epochs: number of passes over the text for training.
        settings: further keyword arguments of ``GpuEnergyCallback``.

    Returns:
        The run folder with the energy report.
    """
    folder = new_folder(root / "huggingface")
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        learning_rate=3e-3,
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=10,
        report_to=["tensorboard"],
        include_num_input_tokens_seen=True,
        dataloader_pin_memory=torch.cuda.is_available(),
        seed=0,
    )
    train_dataset, eval_dataset = sequences()
    trainer = Trainer(
        model=language_model(),
        args=arguments,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        callbacks=[GpuEnergyCallback(run_name="text", **settings)],
    )
    trainer.train()
    return folder / "energy"
