"""``python -m tests.profiling.host.workers_script FOLDER METHOD...``: data from two workers.

The workers are started by each method, ``fork`` or ``spawn``, in a folder of its name.
"""

import sys
import time
from functools import partial
from pathlib import Path

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.profiling.host import HostProfiler


def load(number):
    """Return a sample; needs 16 MiB meanwhile."""
    kept = bytearray(16 << 20)
    time.sleep(0.002)
    return float(number + len(kept))


class Samples:
    """A data set of 64 samples."""

    def __len__(self):
        return 64

    def __getitem__(self, number):
        return load(number)


def collate(samples):
    """The user's ``collate_fn``."""
    return sum(samples)


def init(worker, folder):
    """The user's ``worker_init_fn``."""
    (folder / f"init{worker}").touch()


def main(folder, method):
    """Run the training with one start method."""
    from torch.utils.data import DataLoader

    folder.mkdir()
    begin = partial(init, folder=folder)
    loader = DataLoader(
        Samples(),
        batch_size=4,
        num_workers=2,
        multiprocessing_context=method,
        collate_fn=collate,
        worker_init_fn=begin,
    )
    profiler = HostProfiler(skip=0, steps=5, functions=[load])
    meter = EnergyMeter(config=EnergyConfig(report_dir=folder), sources=[], profilers=[profiler])
    original = DataLoader.__iter__
    with meter:
        meter.step()
        found = sum(loader)
    assert found == sum(range(64)) + 64.0 * (16 << 20), found
    assert (loader.collate_fn, loader.worker_init_fn) == (collate, begin)
    assert DataLoader.__iter__ is original


if __name__ == "__main__":
    for method in sys.argv[2:]:
        main(Path(sys.argv[1]) / method, method)
