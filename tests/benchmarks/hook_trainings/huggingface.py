"""A Hugging Face training on the CPU, with TensorBoard, whose steps take about a millisecond."""

import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from energy_callbacks.huggingface import GpuEnergyCallback
from energy_callbacks_huggingface.log_filter import LastCallback, LogFilter
from energy_callbacks_huggingface.tensorboard_output import TrainerTensorBoardOutput
from tests.benchmarks.common.hook_times import HookTimer

BATCH, FEATURES, BATCHES = 32, 64, 200


class Model(torch.nn.Module):
    """A small perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)
        )

    def forward(self, x: Any) -> dict[str, Any]:
        """Return the loss of a batch."""
        return {"loss": self.layers(x).square().mean()}


def train(times: HookTimer, *, steps: int, every: int | None) -> None:
    """Train; see ``tests.benchmarks.hook_trainings``."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            logging_steps=10,
            save_strategy="no",
            report_to=["tensorboard"],
            disable_tqdm=True,
            use_cpu=True,
            remove_unused_columns=False,
        )
        rows: Any = [{"x": row} for row in torch.randn(BATCHES * BATCH, FEATURES)]
        callback = callback_of(times, every, Path(folder) / "energy")
        Trainer(model=Model(), args=arguments, train_dataset=rows, callbacks=[callback]).train()


def callback_of(times: HookTimer, every: int | None, folder: Path) -> GpuEnergyCallback:
    """Return a callback whose hooks are timed, also those of the callbacks that it adds."""
    callback = GpuEnergyCallback(log_every_n_steps=every, report_dir=folder)
    for holder in (callback, LogFilter, LastCallback):
        kind = holder if isinstance(holder, type) else type(holder)
        for name in dir(TrainerCallback):
            is_own = getattr(kind, name) is not getattr(TrainerCallback, name)
            if name.startswith("on_") and is_own:
                label = name if holder is callback else f"{kind.__name__}.{name}"
                begins_step = label == "on_step_begin"
                timed = times.timed(getattr(holder, name), label, begins_step=begins_step)
                setattr(holder, name, timed)
    times.wrap(callback._meter, "log", is_row=True)
    times.wrap(TrainerTensorBoardOutput, "write", owner="logger")
    return callback
