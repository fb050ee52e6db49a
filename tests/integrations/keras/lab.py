"""Keras' lab: the contract's trainings in a real ``fit``, on the backend of the process."""

import shutil
from pathlib import Path
from typing import Any

import keras

from energy_callbacks.keras import GpuEnergyCallback
from energy_callbacks.testing import FakeClock
from tests.integrations.contract.lab import BATCH_SIZE, Plan, Rows
from tests.integrations.keras.training import BACKEND, Tick, data, model
from tests.integrations.reading import scalars


class SlowSave(keras.callbacks.BackupAndRestore):
    """A checkpoint after each epoch that takes time and stays."""

    def __init__(self, folder: Path, clock: FakeClock, save_s: float) -> None:
        super().__init__(folder, delete_checkpoint=False)
        self.clock = clock
        self.save_s = save_s

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        self.clock.advance(self.save_s)


class KerasTraining:
    """One model; each call has the same callbacks."""

    def __init__(self, folder: Path, clock: FakeClock, plan: Plan, callbacks: tuple) -> None:
        self.folder = folder
        self.clock = clock
        self.plan = plan
        self.callbacks = callbacks
        self._model = self._new_model()

    def _new_model(self) -> keras.Model:
        accumulate = self.plan.accumulate if self.plan.accumulate > 1 else None
        optimizer = keras.optimizers.SGD(0.01, gradient_accumulation_steps=accumulate)
        return model(optimizer=optimizer)

    @property
    def model(self) -> keras.Model:
        """On JAX Keras 3.6 leaves a model without weights after an exception: then a new one."""
        if any(variable._value is None for variable in self._model.variables):
            self._model = self._new_model()
        return self._model

    @property
    def _backup(self) -> Path:
        return self.folder / "backup"

    def fit(self) -> None:
        shutil.rmtree(self._backup, ignore_errors=True)
        self.resume()

    def resume(self) -> None:
        plan = self.plan
        callbacks = [*self.callbacks, Tick(self.clock, plan.before_batch)]
        if plan.checkpoint_s is not None:
            callbacks.append(SlowSave(self._backup, self.clock, plan.checkpoint_s))
        if plan.logs:
            callbacks.append(keras.callbacks.TensorBoard(self.folder / "tb", write_graph=False))
        x, y = data(plan.samples)
        validation = data(plan.validation_samples) if plan.validation_samples else None
        self.model.fit(
            x, y, batch_size=BATCH_SIZE, epochs=plan.epochs, validation_data=validation,
            callbacks=callbacks, verbose=0,
        )  # fmt: skip

    def evaluate(self) -> None:
        self.model.evaluate(*data(10 * BATCH_SIZE), **self._alone())

    def predict(self) -> None:
        self.model.predict(data(10 * BATCH_SIZE)[0], **self._alone())

    def _alone(self) -> dict[str, Any]:
        callbacks = [*self.callbacks, Tick(self.clock)]
        return {"batch_size": BATCH_SIZE, "callbacks": callbacks, "verbose": 0}

    def weights(self) -> list[bytes]:
        return [one.tobytes() for one in self.model.get_weights()]

    def rows(self) -> Rows:
        validation = (
            scalars(self.folder / "tb" / "validation") if self.plan.validation_samples else {}
        )
        return scalars(self.folder / "tb" / "train") | {
            f"validation/{tag}": found for tag, found in validation.items()
        }


class KerasLab:
    """See ``tests/integrations/contract/lab.py``."""

    name = f"keras-{BACKEND}"
    framework = "keras"
    callback = GpuEnergyCallback
    loss_tags = ("epoch_loss",)
    unseen_batches = 0

    def training(
        self, folder: Path, clock: FakeClock, plan: Plan, *callbacks: Any
    ) -> KerasTraining:
        return KerasTraining(folder, clock, plan, callbacks)

    def read(self, folder: Path) -> Rows:
        return scalars(folder)
