"""Two ranks on one host: one run, every device once, all samples, and a report of both."""

import csv
import signal
from pathlib import Path

import pytest

from energy_callbacks.report import build, load
from tests.integrations.processes import Script, Scripts, wait
from tests.integrations.ranks import (
    assert_both_ranks_finished,
    assert_both_ranks_stopped_early,
    assert_each_card_counted_once,
    assert_host_counted_once,
    assert_ranks_end_well,
    assert_rows_count_both_ranks,
    assert_the_second_rank_died,
    fake_cards,
    start_ranks,
)

pytest.importorskip("lightning")
RANKS = "tests.integrations.lightning.ddp_script"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, scripts: Scripts) -> Path:
    """Run a training like a user; Lightning starts the second rank. Returns its folder."""
    folder = tmp_path_factory.mktemp("ddp")
    arguments = (str(folder), "--cards", "shared")
    script = Script(
        module=RANKS, folder=folder, arguments=arguments, environment=fake_cards(folder)
    )
    assert wait(scripts.start(script), timeout_s=300.0) == 0, script.output
    return folder


def test_the_saved_report_holds_both_ranks(trained: Path) -> None:
    """The first rank waits for the second; both have finished 800 samples in total."""
    assert_both_ranks_finished(load(trained / "energy" / "energy_report.json"))


def test_the_host_is_counted_once(trained: Path) -> None:
    """Only the first rank measures CPU and RAM."""
    assert_host_counted_once(load(trained / "energy" / "energy_report.json"))


def test_joules_per_sample_count_the_samples_of_both_ranks(trained: Path) -> None:
    """Joules per sample count the samples of both ranks; those of one rank would double them."""
    with (trained / "lightning_logs" / "version_0" / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["efficiency/gpu_j_per_sample"]]
    assert_rows_count_both_ranks(
        load(trained / "energy" / "energy_report.json"),
        *(
            [float(row[f"efficiency/gpu_j_per_{unit}"]) for row in rows]
            for unit in ("step", "sample")
        ),
    )


def test_the_total_is_the_sum_of_the_physical_cards(tmp_path: Path, scripts: Scripts) -> None:
    """Both ranks read the only card; its energy counts once."""
    arguments = (str(tmp_path), "--cards", "shared")
    ranks = start_ranks(scripts, RANKS, tmp_path, *arguments, environment=fake_cards(tmp_path))
    assert_ranks_end_well(ranks)
    report = load(tmp_path / "energy" / "energy_report.json")
    assert_both_ranks_finished(report)
    assert_each_card_counted_once(report, "shared")


def test_a_rank_that_dies_leaves_its_journal(tmp_path: Path, scripts: Scripts) -> None:
    """The second rank is killed (-9): the report includes both, and names the killed one."""
    arguments = (str(tmp_path), "--dying-rank", "1", "--step-s", "0.06", "--cards", "two")
    ranks = start_ranks(scripts, RANKS, tmp_path, *arguments, environment=fake_cards(tmp_path))
    assert [wait(running) for _, running in ranks] == [1, -signal.SIGKILL]
    assert_the_second_rank_died(build(tmp_path / "energy"))


def test_a_budget_ends_both_ranks_at_one_step(tmp_path: Path, scripts: Scripts) -> None:
    """Cards of 500 W, and a budget for two of six seconds: both ranks end at the same step."""
    arguments = (str(tmp_path), "--max-energy-wh", "0.3", "--step-s", "0.06", "--cards", "two")
    ranks = start_ranks(scripts, RANKS, tmp_path, *arguments, environment=fake_cards(tmp_path))
    assert_ranks_end_well(ranks)
    assert_both_ranks_stopped_early(load(tmp_path / "energy" / "energy_report.json"))


@pytest.mark.parametrize(
    "strategy",
    [
        "ddp_fork",
        pytest.param(
            "ddp_spawn",
            marks=pytest.mark.slow(reason="two more processes that import Lightning from nothing"),
        ),
    ],
)
def test_ranks_that_are_children_write_journals(
    tmp_path: Path, scripts: Scripts, strategy: str
) -> None:
    """The user's object in the parent reads them, in a version of the logs it did not know."""
    for name in ("version_0", "version_1"):
        (tmp_path / "lightning_logs" / name).mkdir(parents=True)
    arguments = (str(tmp_path), "--strategy", strategy, "--beside-the-logs")
    script = Script(module=RANKS, folder=tmp_path, arguments=arguments)
    assert wait(scripts.start(script)) == 0, script.output
    assert_both_ranks_finished(load(tmp_path / "seen_by_the_parent.json"))
    (journals,) = tmp_path.glob("lightning_logs/*/energy/attempts/*")
    assert len(list(journals.glob("*.jsonl"))) == 2


def test_two_hosts_are_one_run(tmp_path: Path, scripts: Scripts) -> None:
    """Processes on two hosts share one folder; both count, with their own ranks."""
    nodes = ({"LOCAL_RANK": "0", "NODE_RANK": "0"}, {"LOCAL_RANK": "0", "NODE_RANK": "1"})
    arguments = (str(tmp_path), "--nodes", "2")
    assert_ranks_end_well(start_ranks(scripts, RANKS, tmp_path, *arguments, different=nodes))
    report = load(tmp_path / "energy" / "energy_report.json")
    assert_both_ranks_finished(report)
    hosts = {device.host for device in report.devices if device.energy.energy_j is not None}
    assert hosts == {"node0", "node1"}
    by_device_j = [one.energy.energy_j or 0.0 for one in report.devices if one.counted_in is None]
    assert report.energy.total.energy_j == pytest.approx(sum(by_device_j), rel=1e-9)
