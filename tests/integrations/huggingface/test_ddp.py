"""Two ranks on one host: one run, every device once, all samples, and a report of both."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from energy_callbacks.report import load
from tests.integrations.huggingface.training import boards
from tests.integrations.ranks import assert_both_ranks_finished, assert_host_counted_once
from tests.integrations.reading import scalars

SCRIPT = Path(__file__).with_name("ddp_script.py")
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training with two processes."""
    folder = tmp_path_factory.mktemp("ddp")
    path = os.pathsep.join((str(ROOT), str(ROOT / "integrations")))
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         str(SCRIPT), str(folder)],
        check=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return folder


def test_the_saved_report_holds_both_ranks(trained: Path) -> None:
    """The first rank waits for the slower one: both have finished, 800 samples were seen once."""
    assert_both_ranks_finished(load(trained / "energy" / "energy_report.json"))


def test_tokens_are_not_counted_by_every_rank(trained: Path) -> None:
    """The Trainer gathers tokens over all ranks; 800 rows of 4 are 3200 tokens."""
    assert load(trained / "energy" / "energy_report.json").throughput.tokens == 3200


def test_the_host_is_counted_once(trained: Path) -> None:
    """Only the first rank speaks for CPU and RAM."""
    assert_host_counted_once(load(trained / "energy" / "energy_report.json"))


def test_only_the_first_rank_writes_rows(trained: Path) -> None:
    """One event file; ranks see different joules, and the others' logs stay as they were."""
    assert boards(trained) == [trained / "energy"]
    assert len(list((trained / "energy").glob("events.*"))) == 1
    assert "energy/total_wh" in (trained / "tags-0.txt").read_text()
    assert (trained / "tags-1.txt").read_text() == ""


def test_the_tags_agree_with_the_report(trained: Path) -> None:
    """Joules a sample in the curves are the report's; one rank's samples would double them."""
    report = load(trained / "energy" / "energy_report.json")
    rows = scalars(trained / "energy")["efficiency/total_j_per_sample"]
    assert report.efficiency.total.j_per_sample is not None
    assert rows[-2][1] == pytest.approx(report.efficiency.total.j_per_sample.value_j, rel=0.5)
