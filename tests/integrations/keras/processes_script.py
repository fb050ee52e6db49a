"""One of two JAX processes that train: ``... <port> <rank> <folder> <data> ...``."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.integrations.no_tensorflow import forbid_tensorflow, lean_keras
from tests.integrations.ranks import wait_for_slow_ranks


def main(port: str, rank: int, folder: Path, *kinds: str) -> None:
    """Train on each kind of data, in a run folder of its name, and print the results."""
    import jax

    wait_for_slow_ranks()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
    print(json.dumps({data: train(data, folder / data) for data in kinds}))


def train(data: str, folder: Path) -> dict[str, Any]:
    """Train two epochs of 3 steps; each process has 4 samples per step."""
    import keras
    import numpy as np

    from energy_callbacks.keras import GpuEnergyCallback

    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    ours = GpuEnergyCallback(report_dir=folder)
    x = np.ones((12, 4), "float32")
    history = model.fit(**given(data, x), callbacks=[ours], epochs=2, verbose=0).history
    attempts = [(one.rank, one.steps, one.samples) for one in ours.report().attempts]
    return {"attempts": attempts, "keys": sorted(history)}


def given(data: str, x: Any) -> dict[str, Any]:
    """Return three batches of 4 in a form that ``fit`` accepts."""
    if data == "arrays":
        return {"x": x, "y": x[:, :1], "batch_size": 4}
    if data == "tf.data":
        import tensorflow as tf

        return {"x": tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(4)}
    from tests.integrations.keras.training import Batches

    return {"x": Batches(len(x))}


if __name__ == "__main__":
    if "tf.data" not in sys.argv:
        forbid_tensorflow()
    with lean_keras():
        main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
