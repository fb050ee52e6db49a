"""Two ranks search for one batch size, where Lightning's finder refuses (lightning#4424)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lightning")
SCRIPT = Path(__file__).with_name("ddp_tuner_script.py")
ROOT = Path(__file__).parents[3]
PATHS = os.pathsep.join((str(ROOT), str(ROOT / "integrations")))


@pytest.mark.parametrize("way", ["before", "ddp", "ddp_fork"])
def test_ranks_find_one_size_and_train_with_it(tmp_path: Path, way: str) -> None:
    """Memory for 100 samples on one and 24 on the other: 24 on both, and equal weights."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), way],
        env=os.environ | {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"rank{n}.json").read_text()) for n in range(2))
    assert first["size"] == second["size"] == max(first["ran"]) == 24
    assert first["ran"] == second["ran"]
    assert all(reason.startswith("rank 1: OutOfMemoryError") for reason in first["refused"])
    assert first["refused"]
    assert set(first["ranks"]) == {2}
    assert first["trained"] == second["trained"] == [24] * 4  # 96 of 192 samples each
    assert first["weight"] == second["weight"]
