"""Phases of the step in a real training of Hugging Face's Trainer."""

from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.huggingface import GpuEnergyCallback
from energy_callbacks.profiling.phases import StepPhases
from tests.profiling.phases import lab

pytest.importorskip("transformers")


def test_phases_of_a_training(tmp_path: Path) -> None:
    """Times and powers of forward, backward and optimizer."""
    import torch
    from transformers import Trainer, TrainingArguments

    machine = lab.Machine()
    inner, optimizer = lab.training(torch, machine)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> dict[str, Any]:
            return {"loss": self.inner(x).sum()}

    callback = GpuEnergyCallback(meter=machine.meter(tmp_path / "run", StepPhases()))
    trainer = Trainer(
        model=Model(),
        args=TrainingArguments(
            output_dir=str(tmp_path / "out"),
            max_steps=140,
            per_device_train_batch_size=2,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=[{"x": torch.ones(4)} for _ in range(8)],
        optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)),
        callbacks=[callback],
    )
    trainer.train()
    lab.check(callback.report().profile.step_phases)
