"""Two ranks on one host: one run, every device once, all samples, and a report of both."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from energy_callbacks.report import load
from tests.integrations.ranks import assert_both_ranks_finished, assert_host_counted_once

pytest.importorskip("lightning")
SCRIPT = Path(__file__).with_name("ddp_script.py")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training with two processes."""
    folder = tmp_path_factory.mktemp("ddp")
    subprocess.run([sys.executable, str(SCRIPT), str(folder)], check=True, timeout=300)
    return folder


def test_the_saved_report_holds_both_ranks(trained: Path) -> None:
    """The first rank waits for the slower one: both have finished, and 800 samples were seen."""
    assert_both_ranks_finished(load(trained / "energy" / "energy_report.json"))


def test_the_host_is_counted_once(trained: Path) -> None:
    """Only the first rank speaks for CPU and RAM."""
    assert_host_counted_once(load(trained / "energy" / "energy_report.json"))


def test_the_tags_agree_with_the_report(trained: Path) -> None:
    """Joules a sample in the curves are the report's; one rank's samples would double them."""
    report = load(trained / "energy" / "energy_report.json")
    with (trained / "lightning_logs" / "version_0" / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["efficiency/total_j_per_sample"]]
    logged = float(rows[-2]["efficiency/total_j_per_sample"])
    assert report.efficiency.total.j_per_sample is not None
    assert logged == pytest.approx(report.efficiency.total.j_per_sample.value_j, rel=0.5)
