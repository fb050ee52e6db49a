"""A Keras training on the CPU, with TensorFlow's TensorBoard if it is installed."""

import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np

from energy_callbacks.keras import GpuEnergyCallback
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from energy_callbacks_keras.callback_list import _LogFilter
from energy_callbacks_keras.rows import KerasTensorBoardOutput
from tests.benchmarks.common.hook_times import HookTimer

BATCH, FEATURES, BATCHES = 32, 64, 200


def train(times: HookTimer, *, steps: int, every: int | None) -> None:
    """Train; see ``tests.benchmarks.hook_trainings``. By default there is a row per epoch."""
    if keras.config.backend() == "torch":
        import torch

        torch.set_num_threads(1)
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    rows = np.random.default_rng(0).normal(size=(BATCHES * BATCH, FEATURES)).astype("float32")
    with tempfile.TemporaryDirectory() as folder:
        callbacks: list[Any] = [callback_of(times, every, Path(folder) / "energy")]
        if importlib.util.find_spec("tensorflow"):
            callbacks.append(keras.callbacks.TensorBoard(folder))
        epochs = max(steps // BATCHES, 1)
        model.fit(
            rows, rows[:, :1], batch_size=BATCH, epochs=epochs, verbose=2, callbacks=callbacks
        )


def callback_of(times: HookTimer, every: int | None, folder: Path) -> GpuEnergyCallback:
    """Return a callback whose hooks are timed, also those of the filters that it adds."""
    callback = GpuEnergyCallback(update_freq="epoch" if every is None else every, report_dir=folder)
    for name in dir(keras.callbacks.Callback):
        is_own = getattr(GpuEnergyCallback, name) is not getattr(keras.callbacks.Callback, name)
        if name.startswith("on_") and is_own:
            times.wrap(callback, name, begins_step=name == "on_train_batch_begin")
    times.wrap(_LogFilter, "on_epoch_end")
    times.wrap(callback._meter, "log", is_row=True)
    for output in (TensorBoardOutput, KerasTensorBoardOutput):
        times.wrap(output, "write", owner="logger")
    return callback
