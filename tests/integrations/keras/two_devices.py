"""The processor as two devices, for trainings that are distributed inside one process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import keras

from tests.integrations.keras.training import BACKEND

_OF_JAX = "--xla_force_host_platform_device_count=2"


def offer() -> None:
    """Split the CPU into two devices, before the first computation."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        halves = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
        tf.config.set_logical_device_configuration(cpu, halves)
    if BACKEND == "jax":
        import jax

        own = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{own} {_OF_JAX}"
        jax.devices()
        os.environ["XLA_FLAGS"] = own  # processes of tests have one device


@contextmanager
def used() -> Iterator[None]:
    """Distribute the models that are created in this block over both devices."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
            yield
        return
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=["cpu:0", "cpu:1"]))
    try:
        yield
    finally:
        keras.distribution.set_distribution(None)
