"""``python -m tests.cli.command ...`` runs the command line without the plot of GPU samples.

Drawing that plot takes longer than most commands that tests measure. If ``BEGINS_AFTER`` is the
path of a file, ``run`` starts its command only after this file exists.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from energy_callbacks.cli import main, run
from energy_callbacks.meter import EnergyMeter

_meter = run._meter


def leave_out(samples: Any, path: Path) -> None:
    """Replace ``gpu_stats_plot.save``."""


def wait(arguments: argparse.Namespace, command: Sequence[str]) -> EnergyMeter:
    """Replace ``run._meter``."""
    meter = _meter(arguments, command)
    while not Path(os.environ["BEGINS_AFTER"]).exists():
        time.sleep(0.01)
    return meter


if __name__ == "__main__":
    run.gpu_stats_plot.save = leave_out
    if "BEGINS_AFTER" in os.environ:
        run._meter = wait
    sys.exit(main())
