"""One of two JAX processes that train one model: ``... <data> <port> <rank> <run folder>``."""

import json
import sys
from pathlib import Path


def main(data: str, port: str, rank: int, folder: Path) -> None:
    """Two epochs of 3 steps; each process brings 4 samples to each of them."""
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
    import keras
    import numpy as np

    from energy_callbacks.keras import GpuEnergyCallback

    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    ours = GpuEnergyCallback(report_dir=folder)
    x = np.ones((12, 4), "float32")
    if data == "arrays":
        given = {"x": x, "y": x[:, :1], "batch_size": 4}
    else:
        import tensorflow as tf

        given = {"x": tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(4)}
    history = model.fit(**given, callbacks=[ours], epochs=2, verbose=0).history
    attempts = [(one.rank, one.steps, one.samples) for one in ours.report.attempts]
    print(json.dumps({"attempts": attempts, "keys": sorted(history)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
