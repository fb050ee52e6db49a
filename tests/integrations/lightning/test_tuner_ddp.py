"""Two ranks search for one batch size, where Lightning's finder refuses (lightning#4424)."""

import json
from pathlib import Path

import pytest

pytest.importorskip("lightning")

from tests.integrations.processes import Script, Scripts, wait
from tests.integrations.ranks import assert_ranks_end_well, start_ranks

RANKS = "tests.integrations.lightning.ddp_tuner_script"


@pytest.mark.parametrize("way", ["before", "ddp", "ddp_fork"])
def test_ranks_find_one_size_and_train_with_it(tmp_path: Path, scripts: Scripts, way: str) -> None:
    """100 samples fit on one rank and 24 on the other: 24 on both, and equal weights."""
    arguments = (str(tmp_path), way)
    if way == "ddp_fork":  # starts both ranks itself
        script = Script(module=RANKS, folder=tmp_path, arguments=arguments)
        assert wait(scripts.start(script)) == 0, script.output
    else:
        assert_ranks_end_well(start_ranks(scripts, RANKS, tmp_path, *arguments))
    first, second = (json.loads((tmp_path / f"rank{n}.json").read_text()) for n in range(2))
    assert first["size"] == second["size"] == max(first["ran"]) == 24
    assert first["ran"] == second["ran"]
    assert all(reason.startswith("rank 1: OutOfMemoryError") for reason in first["refused"])
    assert first["refused"]
    assert set(first["ranks"]) == {2}
    assert first["trained"] == second["trained"] == [24] * 4  # 96 of 192 samples each
    assert first["weight"] == second["weight"]
