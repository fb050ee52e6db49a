"""``python -m tests.cli.command ...`` runs the command line without the plot of GPU samples.

Drawing that plot takes longer than most commands that tests measure.
"""

import sys
from pathlib import Path
from typing import Any

from energy_callbacks.cli import main, run


def leave_out(samples: Any, path: Path) -> None:
    """Replace ``gpu_stats_plot.save``."""


if __name__ == "__main__":
    run.gpu_stats_plot.save = leave_out
    sys.exit(main())
