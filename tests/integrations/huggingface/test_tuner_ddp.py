"""Two ranks under torchrun find one batch size, and then train with it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

SCRIPT = Path(__file__).with_name("tuner_ddp_script.py")
ROOT = Path(__file__).parents[3]


def test_ranks_agree_and_train_with_what_they_found(tmp_path: Path) -> None:
    """Sixteen fit on the first, eight on the second: eight, four times on each of two, make 64.

    While they search, none waits for the other in a step, also where the loss or the count of
    tokens would ask all of them.
    """
    ended = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         str(SCRIPT), str(tmp_path)],
        check=False,
        timeout=300,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "integrations"))),
            "OMP_NUM_THREADS": "1",
        },
    )  # fmt: skip
    assert ended.returncode == 0
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert (first["size"], first["accumulation"]) == (8, 4)
    assert first["sizes"] == second["sizes"]
    assert first["is_as_before"]
    assert second["is_as_before"]
    assert first["trained_with"] == second["trained_with"] == [8] * 8
    assert first["steps"] == 2
    assert first["weights"] == second["weights"]
