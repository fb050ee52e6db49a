"""Waiting for data: known where the loader is timed and works on the training thread."""

import pickle
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest

from energy_callbacks.keras import GpuEnergyCallback
from energy_callbacks.testing import FakeClock
from tests.integrations.keras.training import (
    BACKEND,
    IS_3_6,
    STEP_S,
    Batches,
    Loader,
    callback,
    data,
    fit,
    model,
)

TAG = "throughput/data_wait_fraction"
on_thread = pytest.mark.skipif(
    BACKEND == "tensorflow", reason="Keras fetches on other threads on TensorFlow"
)


def waited_s(ours: GpuEnergyCallback) -> float | None:
    """Return the seconds of waiting in the report."""
    return ours.report().throughput.data_wait_s


def batches(loader: Loader, epochs: int) -> Iterator[Any]:
    """Yield the batches of some epochs."""
    for _ in range(epochs):
        for index in range(len(loader)):
            yield loader[index]


def test_a_loader_that_is_not_timed_leaves_waiting_unknown() -> None:
    """There is neither a figure nor a tag."""
    clock = FakeClock()
    ours = callback(clock)
    history = fit(clock, ours, x=Batches(), batch_size=None).history
    assert waited_s(ours) is None
    assert TAG not in history


@pytest.mark.every_backend
@on_thread
@pytest.mark.skipif(IS_3_6, reason="Keras 3.6 loses the first batches of a generator")
def test_a_generator_may_be_timed() -> None:
    """Two epochs of 40 batches are 80 waits, except those that Keras fetches before."""
    clock = FakeClock()
    ours = callback(clock)
    loader = Loader(clock)
    timed = ours.timed(batches(loader, 3))
    fit(clock, ours, x=timed, batch_size=None, steps_per_epoch=len(loader))
    assert 77 * STEP_S - 1e-6 <= waited_s(ours) <= 80 * STEP_S + 1e-6


@on_thread
def test_the_tag_has_a_column_from_the_first_epoch_on() -> None:
    """Half of each epoch is waiting; reporters with fixed columns find the key at once."""
    clock = FakeClock()
    ours = callback(clock)
    history = fit(clock, ours, x=ours.timed(Loader(clock)), batch_size=None, epochs=3).history
    assert len(history[TAG]) == 3
    assert history[TAG][-1] == pytest.approx(0.5, abs=0.02)


@pytest.mark.every_backend
@on_thread
def test_validation_and_prediction_wait_for_nothing() -> None:
    """A timed loader in validation, and a prediction within an epoch."""
    clock = FakeClock()
    ours = callback(clock)
    trained = model()
    rows = data(8)[0]

    class Asking(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 20 and BACKEND != "jax":
                trained.predict(rows, batch_size=4, verbose=0, callbacks=[ours])

    slow = Loader(clock, samples=40, load_s=1.0)
    fit(
        clock,
        ours,
        Asking(),
        model=trained,
        x=ours.timed(Loader(clock)),
        batch_size=None,
        validation_data=ours.timed(slow),
    )
    assert waited_s(ours) == pytest.approx(80 * STEP_S, abs=1e-6)


@pytest.mark.every_backend
@on_thread
def test_what_a_second_fit_peeks_at_belongs_to_no_training() -> None:
    """After a failed training Keras fetches a batch before it calls any hook."""
    clock = FakeClock()
    ours = callback(clock)

    class Failing(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 10:
                raise ZeroDivisionError

    timed = ours.timed(Loader(clock))
    with pytest.raises(ZeroDivisionError):
        fit(clock, ours, Failing(), x=timed, batch_size=None)
    for index in range(5):
        timed[index]
    trained = next(phase for phase in ours.report().phases if phase.name == "train")
    assert trained.duration_s <= 21 * STEP_S + 1e-6  # the eleventh batch was fetched
    assert waited_s(ours) <= 11 * STEP_S + 1e-6


@pytest.mark.every_backend
def test_on_other_threads_waiting_stays_unknown() -> None:
    """Workers and TensorFlow fetch ahead: the time of a batch is not waiting."""
    clock = FakeClock()
    ours = callback(clock)
    workers = 1 if BACKEND == "tensorflow" else 2
    history = fit(clock, ours, x=ours.timed(Batches(workers=workers)), batch_size=None).history
    assert waited_s(ours) is None
    assert ours.report().throughput.data_wait is None
    assert np.isnan(history[TAG]).all()


@pytest.mark.every_backend
def test_a_timed_loader_gives_the_same_training() -> None:
    """Weights and losses are bitwise equal, and the data set's hooks are called."""
    found = []
    for is_timed in (False, True):
        clock = FakeClock()
        ours, trained = callback(clock), model()
        loader = Counted()
        fed = ours.timed(loader) if is_timed else loader
        history = fit(clock, ours, model=trained, x=fed, batch_size=None).history
        found.append(([w.tobytes() for w in trained.get_weights()], history["loss"], loader.ends))
    assert found[0] == found[1]
    assert found[0][2] >= 2


class Counted(Batches):
    """A data set that counts the ends of its epochs."""

    ends = 0

    def on_epoch_end(self) -> None:
        self.ends += 1


def test_a_timed_loader_goes_to_workers_without_us() -> None:
    """It can be pickled while a meter runs, and has the same batches in workers."""
    clock = FakeClock()
    ours = callback(clock)
    timed = ours.timed(Batches())
    ours._meter.start()
    there = pickle.loads(pickle.dumps(timed))
    ours._meter.stop()
    assert there.num_batches == 40
    assert all((a == b).all() for a, b in zip(there[7], timed[7], strict=True))


def test_what_cannot_be_timed_is_refused() -> None:
    """Arrays, lists and other loaders: the message has the type and the remedy."""
    ours = callback(FakeClock())
    with pytest.raises(TypeError, match=r"PyDataset or a generator, got list; pass other data"):
        ours.timed([1, 2])
