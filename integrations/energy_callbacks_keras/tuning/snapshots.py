"""Takes bitwise snapshots of a Keras model (TensorFlow, JAX, torch) and of random generators."""

import sys
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
from keras.src.backend.common import global_state

from energy_callbacks.tuning.snapshot.host_copy import to_host, write
from energy_callbacks.tuning.snapshot.random_state import RandomState

_KERAS = "global_seed_generator"


class ModelSnapshot:
    """Snapshot of a model's variables in host memory.

    It contains weights, moving statistics, states of random generators, metrics, and the state of
    every optimizer that is an attribute of the model. If an optimizer was not built when the
    snapshot was taken, ``restore`` makes it unbuilt again.

    Args:
        model: a built model.
    """

    def __init__(self, model: Any) -> None:
        optimizers = [o for o in vars(model).values() if isinstance(o, keras.optimizers.Optimizer)]
        self._new = [(one, one.get_config()) for one in optimizers if not one.built]
        held = [variable for one in optimizers if one.built for variable in one.variables]
        held += [*model.variables, *model.metrics_variables, *_of_metrics(model)]
        keep = {"tensorflow": _keep_tensorflow, "jax": _keep_jax, "torch": _keep_torch}
        keep_variable = keep[keras.backend.backend()]
        self._kept = [keep_variable(one) for one in {id(one): one for one in held}.values()]

    def restore(self) -> None:
        """Restore all variables; may be called any number of times."""
        for put_back in self._kept:
            put_back()
        for one, config in self._new:
            new = type(one).from_config(config)
            vars(one).clear()
            vars(one).update(vars(new))


def _of_metrics(model: Any) -> list[Any]:
    """Return the variables of the user's metrics. The model lists them only after a batch."""
    compiled = getattr(model, "_compile_metrics", None)
    given = [getattr(compiled, f"_user_{kind}", None) for kind in ("metrics", "weighted_metrics")]
    metrics = [m for m in keras.tree.flatten(given) if isinstance(m, keras.metrics.Metric)]
    return [variable for metric in metrics for variable in metric.variables]


def _keep_tensorflow(variable: Any) -> Callable[[], None]:
    # A distribution strategy keeps one value of a variable per replica; these may differ.
    parts = getattr(variable.value, "values", (variable.value,))
    values = [(part, np.array(part.numpy())) for part in parts]

    def put_back() -> None:
        for part, value in values:
            part.assign(value)

    return put_back


def _keep_jax(variable: Any) -> Callable[[], None]:
    import jax

    value = variable.value
    # Copied, because on a CPU ``np.asarray`` may return memory that JAX reuses in the next step.
    host = np.array(value)
    where = value.sharding if getattr(value, "committed", True) else None
    return lambda: variable.assign(jax.device_put(host.copy(), where))


def _keep_torch(variable: Any) -> Callable[[], None]:
    torch = sys.modules["torch"]
    values = to_host(variable.value)

    def put_back() -> None:
        with torch.no_grad():
            write(values, variable.value)

    return put_back


class RandomSnapshot:
    """Snapshot of the global random generators of Python, NumPy, Keras, PyTorch and TensorFlow.

    PyTorch is included if it is imported, TensorFlow if it is the backend of Keras.

    Args:
        generators: additional PyTorch generators to include.
    """

    def __init__(self, generators: Iterable[Any] = ()) -> None:
        self._global = RandomState()
        self._others = [(one, one.get_state()) for one in generators]
        self._keras = global_state.get_global_attribute(_KERAS)
        self._seed: Any = None
        if self._keras is not None:
            self._seed = np.array(keras.ops.convert_to_numpy(self._keras.state))
        self._tensorflow = TensorFlowRandom() if keras.backend.backend() == "tensorflow" else None

    def restore(self) -> None:
        """Restore all states; remove newer global generators of Keras and TensorFlow."""
        if self._keras is not None:
            self._keras.state.assign(self._seed.copy())
        global_state.set_global_attribute(_KERAS, self._keras)
        if self._tensorflow is not None:
            self._tensorflow.restore()
        for one, state in self._others:
            one.set_state(state)
        self._global.restore()


class TensorFlowRandom:
    """Snapshot of TensorFlow's global generator, and of the generator of operation seeds."""

    def __init__(self) -> None:
        from tensorflow.python.eager import context
        from tensorflow.python.ops import stateful_random_ops

        self._context = context.context()
        self._ops = stateful_random_ops
        self._seeds = getattr(self._context, "_rng", None)  # exists only if a seed was set
        self._state = None if self._seeds is None else self._seeds.getstate()
        self._generator = stateful_random_ops.global_generator
        self._numbers = None if self._generator is None else np.array(self._generator.state.numpy())

    def restore(self) -> None:
        """Restore both generators."""
        if self._generator is not None:
            self._generator.state.assign(self._numbers)
        self._ops.global_generator = self._generator
        if self._seeds is not None:
            self._seeds.setstate(self._state)
            # A cached kernel would continue its old sequence of random numbers.
            self._context.clear_kernel_cache()
