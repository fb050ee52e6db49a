"""Keras goes on while the device works: our callback must not make it wait."""

import threading
from pathlib import Path
from typing import Any

import keras
import pytest
from keras.callbacks import CallbackList

from energy_callbacks.keras import GpuEnergyCallback
from energy_callbacks.testing import FakeClock
from energy_callbacks_keras.callback_list import OtherKerasCallbacks
from tests.integrations.keras.training import BACKEND, BATCH_SIZE, callback, data, model

pytestmark = pytest.mark.every_backend

FLAGS = ("_async_train", "_async_test", "_async_predict")
thread_safe = pytest.mark.skipif(
    BACKEND == "tensorflow", reason="Keras dispatches nothing asynchronously on TensorFlow"
)


class Listening(keras.callbacks.Callback):
    """A callback that records the threads on which batch ends are called."""

    async_safe = True

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.threads.add(threading.get_ident())


@thread_safe
def test_the_asynchronous_dispatch_stays() -> None:
    """With our callback Keras dispatches batch ends as without it."""
    listed = CallbackList([GpuEnergyCallback()])
    assert [getattr(listed, flag) for flag in FLAGS] == [True] * 3


@thread_safe
def test_curtains_keep_it_too() -> None:
    """The callbacks that we add to the list do not override these hooks."""
    ours = GpuEnergyCallback()
    listed = CallbackList([ours], add_history=True, add_progbar=True)
    siblings = OtherKerasCallbacks(ours)
    siblings.all = listed.callbacks
    assert siblings.lead()
    siblings.add_filters(ours._meter)
    assert len(listed.callbacks) == 5
    again = CallbackList([one for one in listed.callbacks if one is not listed._progbar])
    assert [getattr(again, flag) for flag in FLAGS] == [True] * 3


class Watching(keras.callbacks.Callback):
    """A callback that records the list of callbacks within and after epochs."""

    def __init__(self, ours: GpuEnergyCallback) -> None:
        super().__init__()
        self._ours = ours
        self.within: set[str] = set()
        self.after: set[str] = set()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.within |= self._names()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.after |= self._names()

    def _names(self) -> set[str]:
        return {type(one).__name__ for one in self._ours._others.all}


def test_nothing_of_ours_is_called_at_every_batch_but_the_callback(tmp_path: Path) -> None:
    """Keras calls two hooks of every callback per batch, even if they are empty."""
    ours = callback(FakeClock())
    watching = Watching(ours)
    saving = keras.callbacks.ModelCheckpoint(tmp_path / "model.keras")
    model().fit(
        *data(), batch_size=BATCH_SIZE, epochs=2, verbose=2, callbacks=[ours, watching, saving]
    )
    own = {"GpuEnergyCallback", "Watching", "ModelCheckpoint", "History", "ProgbarLogger"}
    assert watching.within == own
    assert watching.after == own | {"_LogFilter", "LambdaCallback"}


@thread_safe
def test_in_a_real_fit() -> None:
    """Batch ends are called on another thread than training."""
    listening = Listening()
    clock = FakeClock()
    model().fit(
        *data(), batch_size=BATCH_SIZE, epochs=2, verbose=0, callbacks=[listening, callback(clock)]
    )
    assert threading.get_ident() not in listening.threads
    assert listening.threads


@pytest.mark.skipif(BACKEND != "jax", reason="only JAX keeps the state of a training elsewhere")
def test_no_hook_copies_the_state_of_a_training_on_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """self.model in a batch hook would copy all variables, 40 times per epoch."""

    def syncs(*callbacks: Any) -> int:
        trained, found = model(), []
        original = trained.jax_state_sync

        def sync() -> None:
            if getattr(trained, "_jax_state", None) and not trained._jax_state_synced:
                found.append(1)
            original()

        monkeypatch.setattr(trained, "jax_state_sync", sync)
        trained.fit(*data(), batch_size=BATCH_SIZE, epochs=2, verbose=0, callbacks=callbacks)
        return len(found)

    clock = FakeClock()
    assert syncs(callback(clock, update_freq=5)) == syncs()
