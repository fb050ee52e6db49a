"""A fit on two devices of one process: ``python distributed_script.py <run folder>``."""

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.integrations.no_tensorflow import forbid_tensorflow


def two_devices() -> Any:
    """The scope in which a model is on two CPUs."""
    import keras

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        halves = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
        tf.config.set_logical_device_configuration(cpu, halves)
        return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope()
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    return contextlib.nullcontext()


def main(folder: Path) -> None:
    """Two epochs of 12 samples; prints what the report says."""
    import keras
    import numpy as np

    from energy_callbacks.keras import GpuEnergyCallback

    with two_devices():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    ours = GpuEnergyCallback(report_dir=folder)
    x = np.ones((12, 4), "float32")
    model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0, callbacks=[ours])
    found = ours.report
    print(json.dumps({"steps": found.throughput.steps, "samples": found.throughput.samples}))


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    if os.environ["KERAS_BACKEND"] != "tensorflow":
        forbid_tensorflow()
    main(Path(sys.argv[1]))
