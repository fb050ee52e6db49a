"""Steps, samples and tokens are what the optimizer and the model have counted."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest

from energy_callbacks.testing import FakeClock
from tests.integrations.keras.training import (
    BACKEND,
    BATCH_SIZE,
    IS_3_6,
    callback,
    data,
    fit,
    model,
)

whole_generators = pytest.mark.skipif(
    IS_3_6, reason="Keras 3.6 itself loses the first batch of a generator"
)

SAMPLES = 10  # 4 + 4 + 2


def counts(ours: Any) -> tuple[int, float | None]:
    """Return optimizer steps and samples of a run."""
    return ours.report().throughput.steps, ours.report().throughput.samples


class Short(keras.utils.PyDataset):
    """Batches of 4, 4 and 2 samples."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        x, y = data(SAMPLES)
        rows = slice(index * BATCH_SIZE, (index + 1) * BATCH_SIZE)
        return x[rows], y[rows]


def generator(epochs: int = 1) -> Iterator[Any]:
    """Yield the same batches; Keras knows nothing about a generator."""
    batches = Short()
    return (batches[index] for _ in range(epochs) for index in range(3))


class Witness(keras.layers.Layer):
    """A layer that counts its rows; the model runs eagerly."""

    rows = 0

    def call(self, inputs: Any) -> Any:
        self.rows += inputs.shape[0] or 0
        return inputs


class OwnStep(keras.Sequential):
    """A model with a user's ``train_step``, whose loss tracker may count anything."""

    def train_step(self, *args: Any, **kwargs: Any) -> Any:
        return super().train_step(*args, **kwargs)


def own_step() -> keras.Model:
    """Return the linear model with this train_step."""
    keras.utils.set_random_seed(0)
    found = OwnStep([keras.Input((4,)), keras.layers.Dense(1)])
    found.compile("sgd", "mse")
    return found


@pytest.mark.every_backend
@pytest.mark.parametrize(
    "weights",
    [{}, {"sample_weight": np.arange(SAMPLES)}, {"class_weight": {0: 3.0, 1: 0.5}}],
    ids=["plain", "sample weights", "class weights"],
)
def test_weights_do_not_change_the_number_of_samples(weights: dict) -> None:
    """10 samples are 10 samples with any weights in the loss."""
    clock = FakeClock()
    ours = callback(clock)
    x, _ = data(SAMPLES)
    fit(clock, ours, x=x, y=(x.sum(axis=1) > 0).astype("int32"), **weights)
    assert counts(ours) == (6, 20)


@pytest.mark.every_backend
def test_a_data_set_whose_batches_nobody_announces() -> None:
    """A PyDataset has no batch size; its samples are counted at the end of each epoch."""
    clock = FakeClock()
    ours = callback(clock)
    history = fit(clock, ours, x=Short(workers=0), batch_size=None, epochs=12).history
    assert counts(ours) == (36, 120)
    joules = 200.0 * 0.3 / SAMPLES
    assert history["efficiency/gpu_j_per_sample"][-1] == pytest.approx(joules, rel=1e-6)


@pytest.mark.every_backend
@whole_generators
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_a_generator_without_a_length() -> None:
    """The execution without data is a step only if the optimizer counts it."""
    clock = FakeClock()
    ours, trained = callback(clock), model()
    fit(clock, ours, model=trained, x=generator(), batch_size=None, epochs=1)
    # With Keras 3.15 on TensorFlow it does: 4.
    counted = int(keras.ops.convert_to_numpy(trained.optimizer.iterations))
    assert counts(ours) == (counted, 10)
    assert counted == 3 or BACKEND == "tensorflow"


@pytest.mark.every_backend
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("settings", [{"epochs": 1}, {"steps_per_epoch": 3}])
def test_a_generator_counts_as_far_as_it_reaches_the_model(settings: dict[str, int]) -> None:
    """Keras 3.6 loses the first batches of a generator on JAX and torch; these are not counted."""
    clock = FakeClock()
    ours, witness = callback(clock), Witness()
    trained = keras.Sequential([keras.Input((4,)), witness, keras.layers.Dense(1)])
    trained.compile("sgd", "mse", run_eagerly=True)
    # Keras has shown it a batch by then, to build the model.
    anew = keras.callbacks.LambdaCallback(on_train_begin=lambda _: setattr(witness, "rows", 0))
    fit(clock, ours, anew, model=trained, x=generator(2), batch_size=None, **settings)
    steps = int(keras.ops.convert_to_numpy(trained.optimizer.iterations))
    assert counts(ours) == (steps, witness.rows)
    assert witness.rows >= SAMPLES


@pytest.mark.every_backend
def test_validation_is_not_counted() -> None:
    """Keras counts validation in the same variable, which is read before."""
    clock = FakeClock()
    ours = callback(clock)
    fit(clock, ours, x=Short(workers=0), batch_size=None, validation_data=data(40))
    assert counts(ours) == (6, 20)


@whole_generators
def test_a_generator_with_steps_per_epoch() -> None:
    """Two epochs of three batches from one generator."""
    clock = FakeClock()
    ours = callback(clock)
    fit(clock, ours, x=generator(2), batch_size=None, steps_per_epoch=3)
    assert counts(ours) == (6, 20)


@whole_generators
def test_the_word_of_the_user_is_corrected_by_what_was_counted() -> None:
    """batch_size=4 is used within the epoch; at its end the short batch is known."""
    clock = FakeClock()
    ours = callback(clock, batch_size=BATCH_SIZE)
    fit(clock, ours, x=generator(2), batch_size=None, steps_per_epoch=3)
    assert counts(ours) == (6, 20)


@pytest.mark.every_backend
@pytest.mark.skipif(BACKEND == "torch", reason="Keras refuses steps_per_execution on torch")
@pytest.mark.parametrize("execution", [2, 3, 8])
def test_several_steps_an_execution(execution: int) -> None:
    """5 batches in executions of 2, 3 or 8 are 5 steps per epoch."""
    clock = FakeClock()
    ours, trained = callback(clock), model(steps_per_execution=execution)
    fit(clock, ours, model=trained, samples=18)
    # Keras 3.6 on TensorFlow counts a step without data at the end of each epoch.
    counted = int(keras.ops.convert_to_numpy(trained.optimizer.iterations))
    assert counts(ours) == (counted, 36)
    assert counted == 10 or IS_3_6


def test_accumulation_runs_over_epochs_and_calls() -> None:
    """3 batches per step, 4 per epoch: the optimizer's count, and every sample."""
    clock = FakeClock()
    ours = callback(clock)
    trained = model(optimizer=keras.optimizers.SGD(0.01, gradient_accumulation_steps=3))
    fit(clock, ours, model=trained, samples=16, epochs=5)
    assert counts(ours) == (6, 80)
    fit(clock, ours, model=trained, samples=16, epochs=4)
    assert int(keras.ops.convert_to_numpy(trained.optimizer.iterations)) == 12
    assert counts(ours) == (12, 144)


def test_an_own_train_step_counts_what_the_data_adapter_says() -> None:
    """Its loss tracker is ignored: batches of 4, the last one of 2."""
    clock = FakeClock()
    ours = callback(clock)
    fit(clock, ours, model=own_step(), samples=SAMPLES)
    assert counts(ours) == (6, 20)


def test_an_own_train_step_on_unknown_batches() -> None:
    """Samples are unknown, and steps are known."""
    clock = FakeClock()
    ours = callback(clock)
    history = fit(clock, ours, model=own_step(), x=Short(workers=0), batch_size=None).history
    assert counts(ours) == (6, None)
    assert np.isnan(history["efficiency/total_j_per_sample"]).all()


def test_an_own_train_step_with_the_word_of_the_user() -> None:
    """With batch_size= three batches have 4 samples each."""
    clock = FakeClock()
    ours = callback(clock, batch_size=BATCH_SIZE)
    fit(clock, ours, model=own_step(), x=Short(workers=0), batch_size=None)
    assert counts(ours) == (6, 24)


@pytest.mark.every_backend
def test_an_epoch_that_is_stopped() -> None:
    """stop_training within an epoch: only completed batches are counted."""

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == stops_at:
                self._model.stop_training = True

    trained = model()
    for stops_at, samples in enumerate((4, 8, 10)):
        clock = FakeClock()
        ours = callback(clock)
        fit(clock, ours, Stop(), model=trained, samples=SAMPLES)
        assert counts(ours) == (stops_at + 1, samples)


@pytest.mark.every_backend
def test_an_evaluation_in_the_middle_of_an_epoch() -> None:
    """Another callback evaluates and so resets Keras' count; the data adapter is used instead."""
    clock = FakeClock()
    ours = callback(clock)

    class Evaluate(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 20:
                self.model.evaluate(*data(8), verbose=0, callbacks=[ours])

    fit(clock, ours, Evaluate())
    assert counts(ours) == (80, 320)


def test_the_first_batches_of_a_run_are_not_forgotten() -> None:
    """One batch in one epoch is one step with one batch."""
    clock = FakeClock()
    ours = callback(clock)
    fit(clock, ours, samples=3, epochs=1)
    assert counts(ours) == (1, 3)


def test_steps_that_the_optimizer_skips() -> None:
    """With a loss scale that is too large at first, skipped batches are no steps."""
    clock = FakeClock()
    ours = callback(clock)
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01), 2.0**127)
    trained = model(optimizer=optimizer)
    fit(clock, ours, model=trained)
    counted = int(keras.ops.convert_to_numpy(optimizer.inner_optimizer.iterations))
    assert 60 < counted < 80
    assert counts(ours) == (counted, 320)
