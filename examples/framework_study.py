"""The same CNN on TensorFlow, JAX and torch: energy to the same accuracy, and is it real?

python examples/framework_study.py --repeats 5 --epochs 8 --out framework_study

Each training is a process of its own, and the frameworks take turns, so that what drifts is in all
of them. Afterwards ``framework_study/comparison.html`` has the answer.
"""

import argparse
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from energy_callbacks.compare import compare

BACKENDS = [name for name in ("tensorflow", "jax", "torch") if find_spec(name)]


def train(folder: Path, seed: int, epochs: int) -> None:
    """One training of the CNN on the digits, on the backend of this process."""
    import keras
    from sklearn.datasets import load_digits

    from energy_callbacks.keras import GpuEnergyCallback

    keras.utils.set_random_seed(seed)
    digits = load_digits()
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Rescaling(1 / 16),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    callback = GpuEnergyCallback(report_dir=folder, run_name=keras.backend.backend())
    images = digits.images[..., None]
    model.fit(
        images,
        digits.target,
        batch_size=64,
        epochs=epochs,
        validation_split=0.2,
        verbose=0,
        callbacks=[callback],
    )


def main() -> None:
    """All trainings in turn, then the comparison."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("framework_study"))
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        train(arguments.out, arguments.one, arguments.epochs)
        return
    for repeat in range(arguments.repeats):
        # Forth and back: no framework is always the one after the pause.
        for backend in BACKENDS if repeat % 2 == 0 else reversed(BACKENDS):
            folder = arguments.out / backend / str(repeat)
            command = [sys.executable, __file__, "--one", str(repeat), "--out", str(folder)]
            environment = os.environ | {"KERAS_BACKEND": backend}
            subprocess.run(
                [*command, "--epochs", str(arguments.epochs)], env=environment, check=True
            )
    groups = {name: sorted((arguments.out / name).iterdir()) for name in BACKENDS}
    if len(groups) > 1:
        comparison = compare(groups, metric="val_accuracy", margin=0.02)
        print(comparison)
        comparison.save(arguments.out)


if __name__ == "__main__":
    main()
