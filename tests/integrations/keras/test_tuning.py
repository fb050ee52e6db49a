"""The search for a batch size: true sizes, and a model that is afterwards as it was."""

import gc
import math
import threading
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import pytest

from energy_callbacks import EnergyMeter
from energy_callbacks.core.errors import NothingFits
from energy_callbacks.keras import GpuEnergyCallback, tune_batch_size
from energy_callbacks_keras.tuning.batches import source
from energy_callbacks_keras.tuning.trial_step import KerasTrialStep, build_all
from tests.integrations.keras.training import BACKEND
from tests.integrations.keras.tuning import (
    COMPILED,
    QUICK,
    SAMPLES,
    Greedy,
    Looking,
    numbers,
    rows,
    seed,
    small,
    state,
    stateful,
    trained,
    whole,
)


def scaled() -> Any:
    """Return an optimizer whose loss scale is too large at first, so that steps are skipped."""
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01, momentum=0.9), 2.0**120)


@pytest.fixture(scope="module", autouse=True)
def _not_the_first_training() -> None:
    """The first training of a process with PyTorch changes the state of NumPy's generator."""
    if BACKEND == "torch":
        trained(small())


MODELS: dict[str, dict[str, Any]] = {
    "Adam": {},
    "scaled loss": {"optimizer": scaled},
    "moving average": {"optimizer": lambda: keras.optimizers.Adam(0.01, use_ema=True)},
    "unbuilt": {"is_built": False},
    "a metric of its own": {"metrics": lambda: [keras.metrics.MeanSquaredError()]},
    "all of these": {
        "optimizer": lambda: keras.optimizers.LossScaleOptimizer(
            keras.optimizers.Adam(0.01, use_ema=True), 2.0**120
        ),
        "is_built": False,
        "metrics": lambda: [keras.metrics.MeanSquaredError()],
    },
}


def for_every_backend(names: Iterable[str], *some: str) -> list[Any]:
    """Return names of cases; some run on every backend."""
    marks = pytest.mark.every_backend
    return [pytest.param(one, marks=marks if one in some else ()) for one in names]


def made(name: str) -> keras.Model:
    """Return the model of a case."""
    settings = {k: v() if callable(v) else v for k, v in MODELS[name].items()}
    return stateful(**settings)


@pytest.mark.parametrize("name", for_every_backend(MODELS, "all of these"))
def test_a_training_afterwards_is_the_same(name: str) -> None:
    """Losses, values and random numbers of ``fit`` are bitwise those without a search."""
    expected = trained(made(name))
    model = made(name)
    before = numbers()
    tune_batch_size(model, *whole(), **QUICK)
    assert numbers() == before
    assert trained(model) == expected


@pytest.mark.every_backend
def test_a_training_goes_on_the_same() -> None:
    """Between two calls of fit optimizer state, metrics and compiled functions are kept."""
    model = stateful()
    trained(model)
    expected = trained(model)

    model = stateful()
    trained(model)
    before, compiled, history = state(model), model.train_function, model.history
    model.stop_training = True
    tune_batch_size(model, *whole(), **QUICK)
    assert state(model) == before
    assert model.train_function is compiled
    assert model.history is history
    assert model.stop_training is True
    assert trained(model) == expected


@pytest.mark.every_backend
def test_out_of_memory() -> None:
    """No size or only small sizes run: the model is restored, and the size did run."""
    expected = trained(stateful(Greedy(), optimizer="sgd"))
    model = stateful(Greedy(), optimizer="sgd")
    model.optimizer.build(model.trainable_variables)
    before = state(model)
    greedy = next(layer for layer in model.layers if isinstance(layer, Greedy))
    greedy.fits = 0
    with pytest.raises(NothingFits, match="batch size 8 does not fit"):
        tune_batch_size(model, *whole(), **QUICK)
    assert state(model) == before
    greedy.fits = 8
    result = tune_batch_size(model, *whole(), **QUICK | {"max_trials": 3})
    sizes = {trial.size: trial.status for trial in result.trials}
    assert sizes[40] == "out_of_memory"
    assert sizes[result.size] == "ok"
    assert result.size <= greedy.fits
    greedy.fits = 1000
    assert trained(model) == expected


class Failing(keras.Sequential):
    """A model whose train_step fails after some calls."""

    left = 10**9

    def train_step(self, *args: Any) -> Any:
        if self.left == 0:
            raise ZeroDivisionError("mine")
        self.left -= 1
        return super().train_step(*args)


def test_an_error_of_the_user_passes_through() -> None:
    """Within a trial the error propagates, and the model is restored."""

    def failing(left: int) -> keras.Model:
        model = stateful(run_eagerly=True)
        found = Failing([keras.Input((4,)), *model.layers])
        found.compile(model.optimizer, "mse", run_eagerly=True)
        found.left = left
        return found

    expected = trained(failing(10**9))
    model = failing(3)
    with pytest.raises(ZeroDivisionError, match="mine"):
        tune_batch_size(model, *whole(), **QUICK)
    model.left = 10**9
    assert trained(model) == expected


class TwoOptimizers(keras.Sequential):
    """A model with a custom train_step and a second optimizer."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        if BACKEND == "torch":
            self.zero_grad()
            loss = keras.ops.mean((self(x, training=True) - y) ** 2)
            loss.backward()
            gradients = [v.value.grad for v in self.trainable_weights]
            import torch

            with torch.no_grad():
                self.second.apply(gradients, self.trainable_weights)
        else:
            import tensorflow as tf

            with tf.GradientTape() as tape:
                loss = keras.ops.mean((self(x, training=True) - y) ** 2)
            gradients = tape.gradient(loss, self.trainable_weights)
            self.second.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return {"loss": loss}


@pytest.mark.every_backend
@pytest.mark.skipif(BACKEND == "jax", reason="there a train_step has no optimizer but the model's")
def test_an_optimizer_of_a_custom_train_step() -> None:
    """It is restored, built or not."""

    def two(*, is_built: bool) -> TwoOptimizers:
        found = TwoOptimizers([keras.Input((4,)), *small().layers])
        found.second = keras.optimizers.Adam(0.02)
        found.compile("sgd", **COMPILED)
        if is_built:
            found.second.build(found.trainable_variables)
        return found

    expected = trained(two(is_built=False))
    for is_built in (False, True):
        model = two(is_built=is_built)
        tune_batch_size(model, *whole(), **QUICK | {"max_trials": 1})
        assert model.second.built is is_built
        assert trained(model) == expected


# --- data


class Batches(keras.utils.PyDataset):
    """Batches of a size; the last one is short."""

    def __init__(self, batch_size: int = 8, **workers: Any) -> None:
        super().__init__(**workers)
        self.batch_size = batch_size
        self.epochs = 0

    def __len__(self) -> int:
        return math.ceil(SAMPLES / self.batch_size)

    def __getitem__(self, index: int) -> Any:
        batch = slice(index * self.batch_size, (index + 1) * self.batch_size)
        return tuple(column[batch] for column in rows())

    def on_epoch_end(self) -> None:
        self.epochs += 1


class Fixed(keras.utils.PyDataset):
    """Batches of four, whatever the batch size is."""

    def __init__(self, batch_size: int | None = None) -> None:
        super().__init__()
        if batch_size is not None:
            self.batch_size = batch_size

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> Any:
        return tuple(column[4 * index : 4 * index + 4] for column in rows())


def samples() -> Any:
    """Return the single rows."""
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices(rows())


def loader(**settings: Any) -> Any:
    """Return the rows in PyTorch's batches."""
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(*map(torch.from_numpy, rows()))
    return torch.utils.data.DataLoader(data, **{"batch_size": 8, "shuffle": True} | settings)


def own_batches() -> Any:
    """Return a loader with a batch sampler of the user."""
    torch = pytest.importorskip("torch")
    return torch.utils.data.DataLoader(loader().dataset, batch_sampler=[[0, 1]])


def stream() -> Any:
    """Return rows of unknown number."""
    torch = pytest.importorskip("torch")

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Any:
            return iter(zip(*map(torch.from_numpy, rows()), strict=True))

    return torch.utils.data.DataLoader(Stream(), batch_size=8)


def number() -> Any:
    """Return a tensor of TensorFlow without dimensions, whose shape is not false."""
    return pytest.importorskip("tensorflow").constant(1.0)


DATA: dict[str, Any] = {
    "arrays": rows,
    "samples of tf.data": lambda: (samples(),),
    "batches of tf.data": lambda: (samples().batch(8),),
    "endless tf.data": lambda: (samples().repeat(),),
    "PyDataset": lambda: (Batches(),),
    "PyDataset with threads": lambda: (Batches(workers=2),),
    "function that makes tf.data": lambda: (lambda size: samples().shuffle(37).batch(size),),
    "function that makes a PyDataset": lambda: (Batches,),
    "function that makes a loader": lambda: (lambda size: loader(batch_size=size),),
    "loader": lambda: (loader(),),
}
# One for each way in which a backend of Keras hands out batches.
KINDS = ("arrays", "batches of tf.data", "PyDataset", "loader")


@pytest.mark.parametrize("name", for_every_backend(DATA, *KINDS))
def test_no_short_batch_is_ever_run(name: str) -> None:
    """Each batch has the counted number of samples, and no size exceeds the data."""
    model = Looking()
    limit = {"max_size": 40} if name == "endless tf.data" else {}
    three = {"min_size": 1, "max_trials": 3}
    result = tune_batch_size(model, *DATA[name](), **QUICK | three | limit)
    tried = {trial.size for trial in result.trials}
    assert set(model.sizes) == tried
    assert len(tried) == 3
    # Of a data set in batches nobody knows how short the last one is.
    assert max(tried) == {"endless tf.data": 40, "batches of tf.data": 32}.get(name, SAMPLES)


@pytest.mark.parametrize(
    "name", for_every_backend((name for name in DATA if name != "endless tf.data"), *KINDS[1:])
)
def test_a_training_on_the_data_is_the_same(name: str) -> None:
    """With the user's data in the next fit, and generators of loaders."""

    def data() -> Any:
        seed(5)
        found = DATA[name]()
        if callable(found[0]):
            return (found[0](8),)
        return (samples().batch(8),) if name == "samples of tf.data" else found

    data()  # PyTorch, which a loader imports, must be there before the first seed
    is_batched = name != "arrays"
    given, model = data(), small()
    expected = trained(model, *given, is_batched=is_batched)
    given, model = data(), small()
    used = DATA[name]() if "function" in name or name == "samples of tf.data" else given
    before = numbers()
    tune_batch_size(model, *used, **QUICK)
    assert numbers() == before
    data()
    small()
    assert trained(model, *given, is_batched=is_batched) == expected


def test_dictionaries_and_sample_weights() -> None:
    """Several inputs and sample weights."""
    x, y = rows()
    first, second = keras.Input((4,), name="first"), keras.Input((4,), name="second")
    joined = keras.layers.Dense(1)(keras.layers.Add()([first, second]))
    model = keras.Model({"first": first, "second": second}, joined)
    model.compile("sgd", "mse")
    given = {"first": x, "second": x}
    result = tune_batch_size(model, given, y, sample_weight=np.ones(SAMPLES), **QUICK)
    assert max(trial.size for trial in result.trials) == SAMPLES


@pytest.mark.parametrize("is_batched", [True, False])
@pytest.mark.parametrize("image", ["a", "z"])
def test_inputs_by_name_in_another_order(image: str, *, is_batched: bool) -> None:
    """The shapes of samples are compared with those of the inputs that have their names."""
    tf = pytest.importorskip("tensorflow")
    inputs = {"m": keras.Input((4,), name="m"), image: keras.Input((2, 2, 1), name=image)}
    joined = keras.layers.Add()([inputs["m"], keras.layers.Flatten()(inputs[image])])
    model = keras.Model(
        [inputs[name] for name in sorted(inputs, reverse=True)], keras.layers.Dense(1)(joined)
    )
    model.compile("sgd", "mse", **COMPILED)
    x, y = rows()
    given = {"m": x, image: x.reshape(-1, 2, 2, 1)}
    data = tf.data.Dataset.from_tensor_slices((given, y))
    result = tune_batch_size(model, data.batch(8) if is_batched else data, **QUICK)
    assert max(trial.size for trial in result.trials) == (32 if is_batched else SAMPLES)


@pytest.mark.parametrize("is_batched", [True, False])
def test_numbers_without_their_dimension(*, is_batched: bool) -> None:
    """Batches of numbers are no samples, although they have one dimension, as the input has."""
    tf = pytest.importorskip("tensorflow")
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **COMPILED)
    x, y = rows()
    data = tf.data.Dataset.from_tensor_slices((x[:, 0], y))
    result = tune_batch_size(model, data.batch(8) if is_batched else data, **QUICK)
    assert max(trial.size for trial in result.trials) == (32 if is_batched else SAMPLES)


def test_a_data_set_of_the_user_is_only_read() -> None:
    """Its batch size and its epochs are unchanged."""
    data = Batches(8)
    tune_batch_size(small(), data, **QUICK)
    assert (data.batch_size, data.epochs) == (8, 0)


def test_a_generator_of_a_loader_is_put_back() -> None:
    """Its order is the same afterwards."""
    torch = pytest.importorskip("torch")
    generator = torch.Generator()
    generator.manual_seed(7)
    before = generator.get_state()
    tune_batch_size(small(), loader(generator=generator), **QUICK)
    assert torch.equal(generator.get_state(), before)


@pytest.mark.every_backend
def test_a_stream_needs_the_largest_size() -> None:
    """The number of samples is unknown; backends signal the end of a pass differently."""
    data = stream()
    with pytest.raises(ValueError, match="give max_size"):
        tune_batch_size(small(), data, **QUICK)
    model = Looking()
    result = tune_batch_size(model, data, max_size=37, **QUICK)
    assert set(model.sizes) == {trial.size for trial in result.trials}


def test_a_stream_that_is_too_short() -> None:
    """It never yields a whole batch."""
    with pytest.raises(ValueError, match="make max_size smaller"):
        tune_batch_size(small(), stream(), **QUICK | {"min_size": 64, "max_size": 64})


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "generator": (lambda: (iter([rows()]),), TypeError, "got list_iterator"),
    "PyDataset without a size": (lambda: (Fixed(),), TypeError, "attribute batch_size"),
    "PyDataset whose size cannot be set": (
        lambda: (type("ReadOnly", (Fixed,), {"batch_size": property(lambda _: 4)})(),),
        TypeError,
        "that can be set, got .*; pass a function",
    ),
    "PyDataset of another size": (lambda: (Fixed(4),), ValueError, "got batches of 4"),
    "function of another size": (
        lambda: (lambda size: samples().batch(4),),
        ValueError,
        "got batches of 4",
    ),
    "function that makes arrays": (lambda: (lambda size: rows(),), TypeError, "got tuple"),
    "samples nobody counts": (
        lambda: (samples().filter(lambda x, y: True),),
        ValueError,
        "give max_size",
    ),
    "targets twice": (lambda: (samples(), rows()[1]), ValueError, "y and sample_weight are for"),
    "no arrays": (lambda: ("rows.csv",), TypeError, "got str"),
    "no data": (lambda: (None,), TypeError, "got NoneType"),
    "an empty list": (lambda: ([],), TypeError, "got list"),
    "one number": (lambda: (number(),), TypeError, "arrays of samples, got"),
    "loader with batches of its own": (lambda: (own_batches(),), TypeError, "batch_sampler"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_data_that_is_refused(name: str) -> None:
    """The message has the problem, the type and the remedy, before any step."""
    make, kind, text = REFUSED[name]
    with pytest.raises(kind, match=text):
        tune_batch_size(small(), *make(), **QUICK)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"min_size": 0}, "min_size must be a whole number of at least 1, got 0"),
        ({"min_size": 64}, "there must be a size to try, got min_size=64, max_size=37"),
        ({"max_size": "8"}, "max_size must be a whole number of at least 1, got '8'"),
    ],
)
def test_wrong_options_of_a_model_that_is_not_built(option: dict[str, Any], message: str) -> None:
    """The message is about the option, not about the first batch, from which layers are built."""
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=message):
        tune_batch_size(model, *rows(), **QUICK | option)
    assert not model.built


def test_a_model_that_is_not_compiled() -> None:
    """It has no training function."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="must be compiled"):
        tune_batch_size(model, *rows(), **QUICK)


def test_a_model_that_is_none() -> None:
    """The message does not ask to compile it."""
    with pytest.raises(TypeError, match=r"a keras\.Model, got 3; pass the model"):
        tune_batch_size(3, *rows(), **QUICK)  # type: ignore[arg-type]


# --- executions, accumulation, energy


@pytest.mark.every_backend
@pytest.mark.skipif(BACKEND == "torch", reason="Keras refuses steps_per_execution on torch")
def test_several_steps_an_execution() -> None:
    """All steps are counted, and no execution includes a short batch."""
    model = Looking(steps_per_execution=3)
    data = source(model, *rows())
    build_all(model, data, 1)
    step = KerasTrialStep(model, data)
    for _ in range(5):
        step(5)  # two executions of three whole batches in 37 rows
    step.close()
    assert model.sizes == [5] * 15
    result = tune_batch_size(small(steps_per_execution=3), *rows(), **QUICK)
    assert all(trial.steps % 3 == 0 for trial in result.trials)
    assert max(trial.size for trial in result.trials) == SAMPLES // 3


@pytest.mark.every_backend
def test_a_global_batch() -> None:
    """Micro-batches divide it, and the optimizer steps once for all of them."""
    steps = []

    class Noted(keras.optimizers.SGD):
        def apply(self, *args: Any, **kwargs: Any) -> Any:
            steps.append(self.gradient_accumulation_steps)
            return super().apply(*args, **kwargs)

    optimizer = Noted(0.01)
    model = small(optimizer=optimizer)
    before = state(model)
    divisors = {"min_size": 2, "global_batch_size": 6, "objective": "throughput"}
    result = tune_batch_size(model, *rows(), **QUICK | divisors)
    assert result.size * result.accumulation == 6
    assert set(steps) == {t.accumulation if t.accumulation > 1 else None for t in result.trials}
    assert model.optimizer is optimizer
    assert state(model)["random"] == before["random"]
    assert int(keras.ops.convert_to_numpy(optimizer.iterations)) == 0


@pytest.mark.every_backend
@pytest.mark.skipif(BACKEND == "torch", reason="Keras refuses steps_per_execution on torch")
def test_a_global_batch_in_executions() -> None:
    """It is rejected, because batches of a step are unknown."""
    model = stateful(steps_per_execution=2)
    with pytest.raises(ValueError, match="steps_per_execution=1"):
        tune_batch_size(model, *rows(), global_batch_size=8, **QUICK)


def test_beside_the_callback(tmp_path: Any) -> None:
    """With one meter for both the report has the search as a separate phase."""
    clocked = EnergyMeter()
    with clocked as meter:
        ours = GpuEnergyCallback(meter=meter)
        model = stateful()
        tune_batch_size(model, *rows(), meter=meter, **QUICK)
        model.fit(*rows(), verbose=0, callbacks=[ours])
    [attempt] = meter.report().attempts
    assert attempt.status == "finished"
    assert {"tuning", "train"} <= {phase.name for phase in meter.report().phases}


def test_workers_end() -> None:
    """No thread of a data set's workers remains after its trial."""
    before = set(threading.enumerate())
    left = []

    def workers(trial: Any) -> None:
        gc.collect()
        now = set(threading.enumerate()) - before
        left.extend(thread.name for thread in now if thread.name.startswith("Worker"))

    tune_batch_size(small(), Batches(workers=2), on_trial=workers, **QUICK)
    assert left == []


@pytest.mark.every_backend
@pytest.mark.skipif(BACKEND != "torch", reason="modes and gradients are torch's")
def test_modes_and_gradients_of_torch() -> None:
    """No gradient remains, and each layer has its mode."""
    model = stateful()
    model.eval()
    layers = list(model.modules())  # Keras' own list of parameters comes with the first batch
    tune_batch_size(model, *rows(), **QUICK)
    assert not any(layer.training for layer in layers)
    assert all(one.grad is None for one in model.parameters())


@pytest.mark.every_backend
@pytest.mark.skipif(BACKEND != "tensorflow", reason="strategies are TensorFlow's")
def test_variables_that_a_strategy_mirrors() -> None:
    """The values of all replicas are restored."""
    import tensorflow as tf

    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = small()
    before = [np.array(one) for one in model.get_weights()]
    tune_batch_size(model, *rows(), **QUICK | {"max_trials": 1})
    after = model.get_weights()
    assert all((a == b).all() for a, b in zip(before, after, strict=True))
