"""Trains a small network on the 1,797 handwritten digits of scikit-learn, with Keras."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import keras
from sklearn.datasets import load_digits

from energy_callbacks.cli.demos import new_folder
from energy_callbacks.keras import GpuEnergyCallback


def digit_classifier() -> Any:
    """Return a compiled model: two convolutions and a linear layer for 8 x 8 images."""
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
    return model


def train(root: Path, epochs: int, settings: dict[str, Any]) -> Path:
    """Train a ``digit_classifier`` with ``GpuEnergyCallback``.

    Args:
        root: folder in which each training creates its own folder.
        epochs: number of passes over the training digits.
        settings: further keyword arguments of ``GpuEnergyCallback``.

    Returns:
        The run folder with the energy report.
    """
    keras.utils.set_random_seed(0)
    folder = new_folder(root / "keras")
    energy = folder / "energy"
    callbacks = [GpuEnergyCallback(run_name="digits", report_dir=energy, **settings)]
    # The TensorBoard callback of Keras needs TensorFlow. ``GpuEnergyCallback`` writes the curves of
    # its own figures without TensorFlow.
    if find_spec("tensorflow"):
        callbacks.append(keras.callbacks.TensorBoard(folder))
    digits: Any = load_digits()
    digit_classifier().fit(
        digits.images[..., None] / 16.0,
        digits.target,
        batch_size=64,
        epochs=epochs,
        validation_split=0.2,
        verbose=2,
        callbacks=callbacks,
    )
    return energy
