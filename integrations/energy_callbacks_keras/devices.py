"""Finds the GPUs of a model and the rank of this process, for every backend of Keras."""

import dataclasses
from typing import Any

import keras
import numpy as np

from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.sensing.frameworks.device_names import device_names
from energy_callbacks_keras.counts import asked


def used_gpus(model: Any) -> tuple[int | str, ...] | None:
    """Return this process's GPUs that hold the model's first weight, as ``device_names`` does.

    The result is empty if the weight is on a CPU, and ``None`` if its device is unknown.
    """
    find = {"tensorflow": _of_tensorflow, "jax": _of_jax}

    def ordinals() -> tuple[int | str, ...]:
        weights = model.trainable_variables or model.variables
        value, backend = weights[0].value, keras.backend.backend()
        if backend == "torch":
            return device_names(value.device.type, [value.device.index or 0])
        return tuple(sorted(find[backend](value)))

    return asked(ordinals)


def _of_tensorflow(value: Any) -> set[int]:
    import tensorflow as tf

    visible = tf.config.get_visible_devices("GPU")
    # A strategy mirrors each variable, with one value per replica.
    devices = {str(one.device) for one in getattr(value, "values", (value,))}
    logical = (name.rpartition("GPU:")[2] for name in devices if "GPU:" in name)
    return {int(visible[int(number)].name.rpartition(":")[2]) for number in logical}


def _of_jax(value: Any) -> set[int]:
    import jax

    return {
        device.id if device.local_hardware_id is None else device.local_hardware_id
        for device in value.devices()
        if device.platform == "gpu" and device.process_index == jax.process_index()
    }


def process(model: Any) -> TrainingProcess:
    """Return framework, rank and world size of this process.

    The backend gives rank and world size if it knows several processes; otherwise they are read
    from environment variables.

    Raises:
        ValueError: if an environment variable of a launcher is not a number.
    """
    launched = dataclasses.replace(
        TrainingProcess.from_environment(), framework="keras", framework_version=keras.__version__
    )
    rank, world_size = _rank(model)
    if world_size == 1:
        return launched
    return dataclasses.replace(launched, rank=rank, world_size=world_size)


def _rank(model: Any) -> tuple[int, int]:
    """Return rank and world size from the backend; ``(0, 1)`` if it does not know them."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return _rank_of_tensorflow(model)
    if backend == "jax":
        import jax

        return jax.process_index(), jax.process_count()
    if backend == "torch":
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _rank_of_tensorflow(model: Any) -> tuple[int, int]:
    strategy = getattr(model, "distribute_strategy", None)
    resolver = getattr(strategy, "cluster_resolver", None)
    if resolver is None or not resolver.task_type:
        return 0, 1
    cluster = resolver.cluster_spec().as_dict()
    tasks = [(kind, i) for kind in ("chief", "worker") for i in range(len(cluster.get(kind, ())))]
    task = (resolver.task_type, resolver.task_id)
    return (tasks.index(task), len(tasks)) if task in tasks else (0, 1)


def check_budget(process: TrainingProcess) -> None:
    """Check that all processes can stop after the same epoch when the budget is used up.

    Raises:
        ValueError: if several processes train with TensorFlow or torch.
    """
    if process.world_size > 1 and keras.backend.backend() != "jax":
        raise ValueError(
            "max_energy_wh and max_emissions_g need one process, or Keras on JAX, got "
            f"{process.world_size} processes of {keras.backend.backend()}; leave the budget out"
        )


def add(number: float) -> float:
    """Return the sum of a number over all JAX processes. All of them must call this function.

    On other backends the number itself is returned.
    """
    if keras.backend.backend() != "jax":
        return number
    import jax
    from jax.experimental import multihost_utils

    if jax.process_count() == 1:
        return number
    return float(multihost_utils.process_allgather(np.float32(number)).sum())
