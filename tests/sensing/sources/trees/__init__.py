"""Trees of files like those in /sys, whose sensors follow a known power.

``tree`` builds folders and files, ``devices`` describes the files of known devices, ``running``
keeps their values up to date. ``python -m tests.sensing.sources.trees DIR --kind amd`` makes a
tree and keeps it running until it is killed::

    tree = Tree(tmp_path)
    device = amd_gpu(tree)
    running = RunningTree(tree, FakeClock())
    running.add(device, Square(low_w=100.0, high_w=400.0, period_s=2.0))
    running.start()                       # from now on, the files follow the clock
    running.truth_j(device, 5.0, 10.0)    # the energy between two moments, in closed form
"""

from tests.sensing.sources.trees.devices import (
    KINDS,
    amd_gpu,
    ina3221,
    intel_gpu,
    rapl_package,
    xe_gpu,
)
from tests.sensing.sources.trees.live_files import LiveDevice, LiveFile, State, number
from tests.sensing.sources.trees.running import RunningTree
from tests.sensing.sources.trees.tree import Tree

__all__ = [
    "KINDS",
    "LiveDevice",
    "LiveFile",
    "RunningTree",
    "State",
    "Tree",
    "amd_gpu",
    "ina3221",
    "intel_gpu",
    "number",
    "rapl_package",
    "xe_gpu",
]
