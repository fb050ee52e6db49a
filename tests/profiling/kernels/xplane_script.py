"""``python -m tests.profiling.kernels.xplane_script FRAMEWORK FOLDER``: Keras on a CPU.

Prints one JSON object, the last line.
"""

import json
import os
import sys
from pathlib import Path


def main(framework: str, folder: Path) -> None:
    """Two windows."""
    os.environ["KERAS_BACKEND"] = framework
    import keras
    import numpy as np

    from energy_callbacks.keras import GpuEnergyCallback
    from energy_callbacks.profiling.kernels import KernelProfiler

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    x = np.random.default_rng(0).normal(size=(640, 4))
    profiler = KernelProfiler(windows_after=(10, 30), max_overhead=1.0)
    ours = GpuEnergyCallback(report_dir=folder, profile=[profiler])
    model.fit(x, x.sum(axis=1), batch_size=8, epochs=2, verbose=0, callbacks=[ours])
    profile = ours.report.profile
    assert profile is not None
    assert profile.kernels is not None
    found = profile.kernels
    told = {name: getattr(found, name) for name in ("framework", "windows", "steps", "traces")}
    print(json.dumps({**told, "notes": found.notes, "classes": len(found.classes)}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
