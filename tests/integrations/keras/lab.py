"""Keras' lab: the contract's trainings in a real ``fit``, on the backend of the process."""

import shutil
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
from keras import callbacks

from energy_callbacks.keras import GpuEnergyCallback
from energy_callbacks.testing import FakeClock
from tests.integrations.contract.lab import BATCH_SIZE, Plan, Rows, Stock, together
from tests.integrations.contract.leaves import leaves, of_json
from tests.integrations.keras.models import Compiled, Models, put, values
from tests.integrations.keras.training import BACKEND, Batches, Loader, Tick, data
from tests.integrations.reading import scalars

# Among a plan's settings: those of the optimizer, all others are those of ``fit``.
OPTIMIZER = "optimizer"


class SlowSave(keras.callbacks.BackupAndRestore):
    """A callback that saves a checkpoint after each epoch, which takes time."""

    def __init__(self, folder: Path, clock: FakeClock, save_s: float) -> None:
        super().__init__(folder, delete_checkpoint=False)
        self.clock = clock
        self.save_s = save_s

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        self.clock.advance(self.save_s)


class KerasTraining:
    """One model; each call has the same callbacks.

    Args:
        folder: of its files.
        clock: time.
        plan: of the training.
        ours: the callbacks.
        models: of all trainings. One that has raised keeps its own.
    """

    def __init__(
        self, folder: Path, clock: FakeClock, plan: Plan, ours: tuple, models: Models
    ) -> None:
        self.folder = folder
        self.clock = clock
        self.plan = plan
        self.callbacks = ours
        self._models = models
        self._kept: Compiled | None = None
        self._values: list[np.ndarray] | None = None

    @contextmanager
    def _model(self) -> Iterator[keras.Model]:
        """Return the model for one call, with the values of the last call."""
        compiled = self._kept if self._kept and self._kept.is_whole else self._taken()
        self._kept = compiled
        yield compiled.model
        self._kept = None
        self._values = values(compiled.model)
        self._steps = int(compiled.model.optimizer.iterations)
        self._weights = [one.tobytes() for one in compiled.model.get_weights()]
        self._models.give_back(self._kind, compiled)

    def _taken(self) -> Compiled:
        compiled = self._models.take(self._kind, self._optimizer())
        if self._values is None:
            keras.utils.set_random_seed(0)
        else:
            put(compiled.model, self._values)
        return compiled

    @property
    def _kind(self) -> Hashable:
        """Return what the model is compiled with, and the kind of data."""
        plan = self.plan
        settings = tuple(plan.settings.get(OPTIMIZER, {}).items())
        return settings, plan.accumulate, plan.stream, plan.workers, plan.waits

    def _optimizer(self) -> keras.optimizers.Optimizer:
        accumulate = self.plan.accumulate if self.plan.accumulate > 1 else None
        return keras.optimizers.SGD(
            0.01, gradient_accumulation_steps=accumulate, **self.plan.settings.get(OPTIMIZER, {})
        )

    @property
    def _backup(self) -> Path:
        return self.folder / "backup"

    def fit(self) -> None:
        shutil.rmtree(self._backup, ignore_errors=True)
        self.resume()

    def resume(self) -> None:
        plan = self.plan
        used = [*self.callbacks, Tick(self.clock, plan.before_batch, plan.step_s)]
        if plan.checkpoint_s is not None:
            used.append(SlowSave(self._backup, self.clock, plan.checkpoint_s))
        if plan.logs:
            used.append(keras.callbacks.TensorBoard(self.folder / "tb", write_graph=False))
        fed: dict[str, Any] = {"shuffle": not plan.workers, "batch_size": BATCH_SIZE}
        fed["x"], fed["y"] = data(plan.samples)
        if plan.workers:
            workers = {"workers": plan.workers, "use_multiprocessing": True}
            fed = {"x": Batches(plan.samples, **workers), "shuffle": False}
        elif plan.stream:
            fed = {"x": stream(plan.stream)}
        elif plan.waits:
            ours = next(one for one in self.callbacks if isinstance(one, GpuEnergyCallback))
            loader = Loader(self.clock, plan.samples, plan.load_s)
            fed = {"x": ours.timed(loader), "shuffle": False}
        validation = data(plan.validation_samples) if plan.validation_samples else None
        fed |= {"epochs": plan.epochs, "verbose": 0, **plan.settings}
        fed.pop(OPTIMIZER, None)
        with self._model() as model:
            found = model.fit(validation_data=validation, callbacks=used, **fed)
            self._history = found.history

    def evaluate(self) -> None:
        with self._model() as model:
            model.evaluate(*data(10 * BATCH_SIZE), **self._alone())

    def predict(self) -> None:
        with self._model() as model:
            model.predict(data(10 * BATCH_SIZE)[0], **self._alone())

    def _alone(self) -> dict[str, Any]:
        used = [*self.callbacks, Tick(self.clock, step_s=self.plan.step_s)]
        return {"batch_size": BATCH_SIZE, "callbacks": used, "verbose": 0}

    def weights(self) -> list[bytes]:
        return self._weights

    def metrics(self) -> dict[str, Any]:
        return self._history

    def steps(self) -> int:
        return self._steps

    def checkpoint(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path in sorted(self._backup.rglob("*")):
            if path.suffix == ".json":
                found[path.name] = of_json(path)
            elif path.suffix == ".h5":
                with h5py.File(path) as file:
                    file.visititems(lambda name, one: found.update({name: _array(one)}))
        return dict(leaves(found, self.folder))

    def run_folder(self) -> Path:
        return self.folder / "tb" / "train"

    def rows(self) -> Rows:
        validation = (
            scalars(self.folder / "tb" / "validation") if self.plan.validation_samples else {}
        )
        return scalars(self.run_folder()) | {
            f"validation/{tag}": found for tag, found in validation.items()
        }


def _array(one: Any) -> Any:
    """Return a data set of an HDF5 file as an array; a group has none."""
    return one[()] if isinstance(one, h5py.Dataset) else None


def csv_logger(folder: Path) -> callbacks.CSVLogger:
    """Create the folder and the callback."""
    folder.mkdir(parents=True)
    return callbacks.CSVLogger(folder / "log.csv")


def stream(sizes: tuple[int, ...]) -> Iterator[Any]:
    """Yield batches of these sizes in order."""
    ends = np.cumsum(sizes)[:-1]
    yield from zip(*(np.split(column, ends) for column in data(sum(sizes))), strict=True)


class KerasLab:
    """See ``tests/integrations/contract/lab.py``."""

    name = f"keras-{BACKEND}"
    framework = "keras"
    callback = GpuEnergyCallback
    loss_tags = ("epoch_loss",)
    unseen_batches = 0
    stock = (
        Stock(
            name="ModelCheckpoint",
            make=lambda f: callbacks.ModelCheckpoint(f / "best.keras", save_best_only=True),
        ),
        Stock(name="EarlyStopping", make=lambda _: callbacks.EarlyStopping("val_loss", 100.0)),
        together(
            Stock(name="TerminateOnNaN", make=lambda _: callbacks.TerminateOnNaN()),
            Stock(name="CSVLogger", make=csv_logger),
            Stock(
                name="LambdaCallback",
                make=lambda _: callbacks.LambdaCallback(on_epoch_end=lambda _, logs: print(logs)),
            ),
        ),
        Stock(name="TensorBoard", make=lambda f: callbacks.TensorBoard(f, update_freq=5)),
        Stock(
            name="ReduceLROnPlateau",
            make=lambda _: callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=100.0),
        ),
        Stock(
            name="LearningRateScheduler",
            make=lambda _: callbacks.LearningRateScheduler(lambda epoch: 0.01 / (epoch + 1)),
        ),
        Stock(
            name="BackupAndRestore",
            make=lambda f: callbacks.BackupAndRestore(f, delete_checkpoint=False),
        ),
        Stock(
            name="SwapEMAWeights",
            make=lambda _: callbacks.SwapEMAWeights(swap_on_epoch=True),
            settings={OPTIMIZER: {"use_ema": True}},
        ),
        Stock(name="ProgbarLogger", settings={"verbose": 1}),
    )

    def __init__(self) -> None:
        self._models = Models()

    def training(
        self, folder: Path, clock: FakeClock, plan: Plan, *callbacks: Any
    ) -> KerasTraining:
        return KerasTraining(folder, clock, plan, callbacks, self._models)

    def read(self, folder: Path) -> Rows:
        return scalars(folder)

    def scalar_writers(self) -> tuple[tuple[Any, str], ...]:
        import tensorflow as tf

        return (tf.summary, "scalar"), (tf.summary.experimental, "write_raw_pb")
