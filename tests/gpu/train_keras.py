"""Trains with Keras on a real GPU, with any backend, compared with the card's energy counter.

``KERAS_BACKEND=jax python -m tests.gpu.train_keras --out DIR [--seconds 20] [--tiny]``: a small
convolutional network on scikit-learn's digits, with validation. Prints the report's figures and
the counter's difference as JSON, and writes both with report and curves to DIR.
"""

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pynvml
from sklearn.datasets import load_digits

from energy_callbacks.keras import GpuEnergyCallback


class Until(keras.callbacks.Callback):
    """Ends the training after some seconds, and reads the card's counter before and after."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def on_train_begin(self, logs: Any = None) -> None:
        self.start_j, self.start_s = counter_j(), time.monotonic()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if time.monotonic() - self.start_s > self.seconds:
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        self.energy_j = counter_j() - self.start_j
        self.duration_s = time.monotonic() - self.start_s


def counter_j() -> float:
    """Return the energy counter of card 0; 0 if there is none."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0.0
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3


def network(width: int) -> keras.Model:
    """Return three convolutions, wide enough to keep a card busy."""
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.UpSampling2D(4),
            keras.layers.Conv2D(width, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(2 * width, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(2 * width, 3, padding="same", activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer="adam",
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def main() -> None:
    """Train, compare, and write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--tiny", action="store_true", help="to see on a CPU that it works")
    arguments = parser.parse_args()
    digits = load_digits()
    images = np.repeat(digits.images[..., None].astype("float32") / 16.0, 8, axis=0)
    labels = np.repeat(digits.target, 8)
    ours, by_hand = GpuEnergyCallback(report_dir=arguments.out), Until(arguments.seconds)
    history = network(8 if arguments.tiny else 128).fit(
        images,
        labels,
        batch_size=256,
        epochs=100_000,
        validation_split=0.1,
        verbose=2,
        callbacks=[ours, by_hand],
    )
    report = ours.report()
    gpu = report.energy.gpu
    found = {
        "backend": keras.backend.backend(),
        "keras": keras.__version__,
        "devices": [(d.name, d.key) for d in report.devices],
        "report_gpu_j": gpu.energy_j,
        "report_gpu_error_j": gpu.error_j,
        "report_s": report.run.duration_s,
        "counter_gpu_j": by_hand.energy_j,
        "counter_s": by_hand.duration_s,
        "samples": report.throughput.samples,
        "samples_by_hand": len(history.epoch) * int(len(images) * 0.9),
        "steps": report.throughput.steps,
        "j_per_sample": history.history["efficiency/total_j_per_sample"][-3:],
        "phases": {p.name: (p.duration_s, p.gpu.energy_j) for p in report.phases},
        "sampler_core_share": report.measuring.core_share,
    }
    print(json.dumps(found, indent=2))
    (arguments.out / f"figures_{keras.backend.backend()}.json").write_text(json.dumps(found))
    for path in arguments.out.glob("attempts/**/*.jsonl"):
        shutil.copy(path, arguments.out)


if __name__ == "__main__":
    main()
