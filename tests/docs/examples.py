"""The scripts in ``examples``, run as a user would run them, but in the process of a test."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.accounting.open_attempts import wait_for_reports

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(
    name: str,
    folder: Path,
    patch: pytest.MonkeyPatch,
    *arguments: str,
    leaves: str = "energy_report.html",
) -> dict[str, Any]:
    """Run a script in a folder; check that it writes a file of this name below it.

    Returns:
        The names that the script has defined.
    """
    patch.chdir(folder)
    patch.setattr(sys, "argv", [str(EXAMPLES / name), *arguments])
    names = runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    wait_for_reports(folder)
    assert list(folder.rglob(leaves))
    return names
