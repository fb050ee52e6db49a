"""The examples run as a user would run them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example(script: Path, tmp_path: Path) -> None:
    """Each example ends well and leaves an energy report below its working directory."""
    pytest.importorskip("lightning")
    environment = os.environ | {"PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, check=True, timeout=300
    )
    assert list(tmp_path.rglob("energy_report.html"))
