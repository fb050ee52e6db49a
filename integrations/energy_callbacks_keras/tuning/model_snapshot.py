"""Snapshots of a model, bit for bit, on each backend."""

import sys
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from energy_callbacks.tuning.snapshot.host_copy import to_host, write


class ModelSnapshot:
    """Variables in host memory.

    Weights, moving statistics, seeds, metrics, and the state of every optimizer that the model has
    as an attribute. One that is not built yet is afterwards as if it had just been made.

    Args:
        model: built.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        optimizers = [o for o in vars(model).values() if isinstance(o, keras.optimizers.Optimizer)]
        self._new = [(one, one.get_config()) for one in optimizers if not one.built]
        held = [variable for one in optimizers if one.built for variable in one.variables]
        held += [*model.variables, *model.metrics_variables, *_of_metrics(model)]
        self._kept = [_kept(variable) for variable in _once(held)]

    def restore(self) -> None:
        """As it was; may be called any number of times."""
        for put_back in self._kept:
            put_back()
        for one, config in self._new:
            made = type(one).from_config(config)
            vars(one).clear()
            vars(one).update(vars(made))


def _of_metrics(model: Any) -> list[Any]:
    """Variables of metrics that the user has made and no batch has built into the model yet."""
    compiled = getattr(model, "_compile_metrics", None)
    given = [getattr(compiled, f"_user_{kind}", None) for kind in ("metrics", "weighted_metrics")]
    metrics = [m for m in keras.tree.flatten(given) if isinstance(m, keras.metrics.Metric)]
    return [variable for metric in metrics for variable in metric.variables]


def _once(variables: Iterable[Any]) -> list[Any]:
    return list({id(variable): variable for variable in variables}.values())


def _kept(variable: Any) -> Callable[[], None]:
    keep = {"tensorflow": _kept_tensorflow, "jax": _kept_jax, "torch": _kept_torch}
    return keep[keras.backend.backend()](variable)


def _kept_tensorflow(variable: Any) -> Callable[[], None]:
    # A strategy mirrors each variable: one value a replica, which may differ.
    parts = getattr(variable.value, "values", (variable.value,))
    values = [(part, np.array(part.numpy())) for part in parts]

    def put_back() -> None:
        for part, value in values:
            part.assign(value)

    return put_back


def _kept_jax(variable: Any) -> Callable[[], None]:
    import jax

    value = variable.value
    # Arrays on the host may share their memory with JAX, which gives it to the next step.
    host = np.array(value)
    where = value.sharding if getattr(value, "committed", True) else None
    return lambda: variable.assign(jax.device_put(host.copy(), where))


def _kept_torch(variable: Any) -> Callable[[], None]:
    torch = sys.modules["torch"]
    values = to_host(variable.value)

    def put_back() -> None:
        with torch.no_grad():
            write(values, variable.value)

    return put_back
