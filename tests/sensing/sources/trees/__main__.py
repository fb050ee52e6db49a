"""Makes a tree and keeps its files up to date until it is killed.

``python -m tests.sensing.sources.trees DIR --kind amd --kind rapl --power 200`` prints ``ready``
once all files exist. For several devices of a kind, name it
several times.
"""

import argparse
import time
from pathlib import Path

from energy_callbacks.sensing.clock import SystemClock
from tests.fake_nvml.signals import Constant
from tests.sensing.sources.trees import KINDS, RunningTree, Tree


def main() -> None:
    """Run a tree."""
    parser = argparse.ArgumentParser(prog="python -m tests.sensing.sources.trees")
    parser.add_argument("folder", type=Path, help="folder that stands for /sys")
    parser.add_argument("--kind", choices=sorted(KINDS), action="append", required=True)
    parser.add_argument("--power", type=float, default=200.0, help="power of each device, W")
    arguments = parser.parse_args()
    running = RunningTree(Tree(arguments.folder), SystemClock())
    for index, kind in enumerate(arguments.kind):
        running.add(KINDS[kind](running.tree, index), Constant(arguments.power))
    running.start()
    print("ready", flush=True)
    while True:
        time.sleep(3600.0)


if __name__ == "__main__":
    main()
