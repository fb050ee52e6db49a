"""Two ranks find one batch size, and then train with it."""

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tests.integrations.processes import Scripts
from tests.integrations.ranks import assert_ranks_end_well, start_ranks

RANKS = "tests.integrations.huggingface.tuner_ddp_script"


def test_ranks_agree_and_train_with_what_they_found(tmp_path: Path, scripts: Scripts) -> None:
    """16 fit on the first rank, 8 on the second: 8, four times on each of two, are 64.

    While they search, none waits for the other in a step, also where the loss or the count of
    tokens would ask all of them.
    """
    assert_ranks_end_well(start_ranks(scripts, RANKS, tmp_path, str(tmp_path)))
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert (first["size"], first["accumulation"]) == (8, 4)
    assert first["sizes"] == second["sizes"]
    assert first["is_as_before"]
    assert second["is_as_before"]
    assert first["trained_with"] == second["trained_with"] == [8] * 8
    assert first["steps"] == 2
    assert first["weights"] == second["weights"]
