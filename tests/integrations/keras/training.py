"""A tiny real Keras training in which time is virtual: each batch takes a tenth of a second."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.keras import GpuEnergyCallback
from energy_callbacks.testing import FakeClock, ScriptedSource

STEP_S = 0.1
POWER_W = 200.0
BATCH_SIZE = 4
BACKEND = keras.backend.backend()
IS_3_6 = keras.__version__.startswith("3.6.")


class Tick(keras.callbacks.Callback):
    """A callback that lets each batch take time, and may call a function before it."""

    def __init__(
        self,
        clock: FakeClock,
        before_batch: Callable[[int], None] = lambda batch: None,
        step_s: float = STEP_S,
    ) -> None:
        super().__init__()
        self.clock = clock
        self.step_s = step_s
        self.before_batch = before_batch
        self.batches = 0

    def on_train_begin(self, logs: Any = None) -> None:
        self.batches = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.before_batch(self.batches)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches += 1
        self.clock.advance(self.step_s)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.clock.advance(self.step_s)

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        self.clock.advance(self.step_s)


def model(**settings: Any) -> keras.Model:
    """Return a linear model, always the same; settings are those of ``compile``."""
    keras.utils.set_random_seed(0)
    found = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    # To compile a function for XLA takes TensorFlow longer than all of its steps here.
    quick = {"jit_compile": False} if BACKEND == "tensorflow" else {}
    optimizer = keras.optimizers.SGD(0.01)
    found.compile(**{"optimizer": optimizer, "loss": "mse"} | quick | settings)
    return found


def data(samples: int = 160) -> tuple[np.ndarray, np.ndarray]:
    """Return fixed rows."""
    rows = np.random.default_rng(0).normal(size=(samples, 4)).astype("float32")
    return rows, rows.sum(axis=1, keepdims=True)


class Batches(keras.utils.PyDataset):
    """Fixed batches, with the number of workers that is set."""

    def __init__(self, samples: int = 160, **workers: Any) -> None:
        super().__init__(**workers)
        self.rows = data(samples)

    def __len__(self) -> int:
        return len(self.rows[0]) // BATCH_SIZE

    def __getitem__(self, index: int) -> Any:
        batch = slice(index * BATCH_SIZE, (index + 1) * BATCH_SIZE)
        return tuple(column[batch] for column in self.rows)


class Loader(Batches):
    """The same batches, each of which takes time on the fetching thread."""

    def __init__(self, clock: FakeClock, samples: int = 160, load_s: float = STEP_S) -> None:
        super().__init__(samples)
        self.clock = clock
        self.load_s = load_s

    def __getitem__(self, index: int) -> Any:
        self.clock.advance(self.load_s)
        return super().__getitem__(index)


def callback(clock: FakeClock, report_dir: Path | None = None, **settings: Any) -> Any:
    """Our callback on a constant, scripted GPU."""
    source = ScriptedSource(clock, power_w=lambda t_s: POWER_W, energy_j=lambda t_s: POWER_W * t_s)
    config = EnergyConfig(report_dir=report_dir)
    return GpuEnergyCallback(
        meter=EnergyMeter(sources=[source], clock=clock, config=config), **settings
    )


def fit(clock: FakeClock, *callbacks: Any, samples: int = 160, **settings: Any) -> Any:
    """Fit a new model in the order of user code, and return the history."""
    trained = settings.pop("model", None) or model()
    defaults = {"batch_size": BATCH_SIZE, "epochs": 2, "verbose": 0, "shuffle": False}
    if "x" not in settings:
        settings["x"], settings["y"] = data(samples)
    return trained.fit(callbacks=[*callbacks, Tick(clock)], **defaults | settings)
