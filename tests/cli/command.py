"""``python -m tests.cli.command ...`` is the command line, without the picture of GPU samples.

To draw it takes longer than most commands that tests measure.
"""

import sys
from pathlib import Path
from typing import Any

from energy_callbacks.cli import main, run


def leave_out(samples: Any, path: Path) -> None:
    """In place of ``gpu_stats_plot.save``."""


if __name__ == "__main__":
    run.gpu_stats_plot.save = leave_out
    sys.exit(main())
