"""Two ranks on one host: one run, every device once, all samples, and a report of both."""

import csv
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from energy_callbacks.report import build, load
from tests.integrations.ranks import (
    assert_both_ranks_finished,
    assert_both_ranks_stopped_early,
    assert_each_card_counted_once,
    assert_host_counted_once,
    assert_the_second_rank_died,
    fake_cards,
)

pytest.importorskip("lightning")
SCRIPT = Path(__file__).with_name("ddp_script.py")
ROOT = Path(__file__).parents[3]
PATHS = os.pathsep.join((str(ROOT), str(ROOT / "integrations")))


def start(
    folder: Path, *options: str, variables: dict[str, str] | None = None
) -> "subprocess.Popen[str]":
    """A training as a user starts it; further ranks are Lightning's business."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), *options],
        env=os.environ | {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"} | (variables or {}),
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(training: "subprocess.Popen[str]") -> None:
    """Wait for it; what it said on stderr where it failed."""
    _, said = training.communicate(timeout=300)
    assert training.returncode == 0, said


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training with two processes."""
    folder = tmp_path_factory.mktemp("ddp")
    finished(start(folder))
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


@pytest.mark.parametrize("cards", ["two", "shared"])
def test_the_total_is_the_sum_of_the_physical_cards(tmp_path: Path, cards: str) -> None:
    """Both ranks read the second card, or the only one: its joules count once."""
    finished(start(tmp_path, "--cards", cards, variables=fake_cards(tmp_path)))
    report = load(tmp_path / "energy" / "energy_report.json")
    assert_both_ranks_finished(report)
    assert_each_card_counted_once(report, cards)


def test_a_rank_that_dies_leaves_its_journal(tmp_path: Path) -> None:
    """The second rank is killed (-9) in the middle: the report has both, and names the dead one."""
    options = ("--dying-rank", "1", "--step-s", "0.06", "--cards", "two")
    training = start(tmp_path, *options, variables=fake_cards(tmp_path))
    training.communicate(timeout=300)
    assert training.returncode != 0
    assert_the_second_rank_died(build(tmp_path / "energy"))


def test_a_budget_ends_both_ranks_at_one_step(tmp_path: Path) -> None:
    """Cards of 500 W and room for two of six seconds: both ranks vote, and end together."""
    options = ("--max-energy-wh", "0.3", "--step-s", "0.06", "--cards", "two")
    finished(start(tmp_path, *options, variables=fake_cards(tmp_path)))
    assert_both_ranks_stopped_early(load(tmp_path / "energy" / "energy_report.json"))


@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp_fork"])
def test_ranks_that_are_children_write_journals(tmp_path: Path, strategy: str) -> None:
    """The user's object stays in the parent and reads them, in a version it never heard of."""
    for name in ("version_0", "version_1"):
        (tmp_path / "lightning_logs" / name).mkdir(parents=True)
    finished(start(tmp_path, "--strategy", strategy, "--beside-the-logs"))
    assert_both_ranks_finished(load(tmp_path / "seen_by_the_parent.json"))
    (journals,) = tmp_path.glob("lightning_logs/*/energy/attempts/*")
    assert len(list(journals.glob("*.jsonl"))) == 2


def test_two_hosts_are_one_run(tmp_path: Path) -> None:
    """A process on each of two hosts with one folder: both count, each by its own rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    shared |= {"LOCAL_RANK": "0", "GLOO_SOCKET_IFNAME": "lo"}
    nodes = [
        start(tmp_path, "--nodes", "2", variables=shared | {"NODE_RANK": str(rank)})
        for rank in range(2)
    ]
    for node in nodes:
        finished(node)
    report = load(tmp_path / "energy" / "energy_report.json")
    assert_both_ranks_finished(report)
    hosts = {device.host for device in report.devices if device.energy.energy_j is not None}
    assert hosts == {"node0", "node1"}
    by_device_j = [one.energy.energy_j or 0.0 for one in report.devices if one.counted_in is None]
    assert report.energy.total.energy_j == pytest.approx(sum(by_device_j), rel=1e-9)
