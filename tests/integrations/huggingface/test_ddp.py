"""Two ranks on one host: one run, every device once, all samples, and a report of both."""

import signal
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from energy_callbacks.report import build, load
from tests.integrations.huggingface.training import boards
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
from tests.integrations.reading import scalars, training_files

RANKS = "tests.integrations.huggingface.ddp_script"


@pytest.fixture(
    scope="module",
    params=[
        "variables",
        pytest.param(
            "torchrun",
            marks=pytest.mark.slow(
                reason="both ranks import the Trainer; the quick ones have torchrun's variables"
            ),
        ),
    ],
)
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, scripts: Scripts
) -> Path:
    """Run a training with two processes, with the variables of torchrun or under it; its folder."""
    folder = tmp_path_factory.mktemp("ddp")
    cards, arguments = fake_cards(folder), (str(folder), "--cards", "shared")
    if request.param == "variables":
        one_host = {"LOCAL_WORLD_SIZE": "2"} | cards
        assert_ranks_end_well(start_ranks(scripts, RANKS, folder, *arguments, environment=one_host))
        return folder
    options = ("--standalone", "--nproc-per-node=2", "-m", "tests.integrations.run_script")
    torchrun = Script(
        module="torch.distributed.run",
        folder=folder,
        arguments=(*options, RANKS, *arguments),
        environment=cards,
    )
    assert wait(scripts.start(torchrun), timeout_s=300.0) == 0, torchrun.output
    return folder


def test_the_saved_report_holds_both_ranks(trained: Path) -> None:
    """The first rank waits for the second; both have finished 800 samples in total."""
    assert_both_ranks_finished(load(trained / "energy" / "energy_report.json"))


def test_tokens_are_not_counted_by_every_rank(trained: Path) -> None:
    """The Trainer gathers tokens over all ranks; 800 rows of 4 are 3200 tokens."""
    assert load(trained / "energy" / "energy_report.json").throughput.tokens == 3200


def test_the_host_is_counted_once(trained: Path) -> None:
    """Only the first rank measures CPU and RAM."""
    assert_host_counted_once(load(trained / "energy" / "energy_report.json"))


def test_only_the_first_rank_writes_rows(trained: Path) -> None:
    """There is one event file, and the other ranks' logs are unchanged."""
    assert boards(trained) == [trained / "energy"]
    assert len(training_files(trained / "energy")) == 1
    assert "energy/total_wh" in (trained / "tags-0.txt").read_text()
    assert (trained / "tags-1.txt").read_text() == ""


def test_joules_per_sample_count_the_samples_of_both_ranks(trained: Path) -> None:
    """Joules per sample count the samples of both ranks; those of one rank would double them."""
    rows = scalars(trained / "energy")
    assert_rows_count_both_ranks(
        load(trained / "energy" / "energy_report.json"),
        *(
            [value for _, value in rows[f"efficiency/gpu_j_per_{unit}"]]
            for unit in ("step", "sample")
        ),
    )


def test_the_total_is_the_sum_of_the_physical_cards(tmp_path: Path, scripts: Scripts) -> None:
    """Both ranks read the second of two cards; its energy counts once."""
    arguments = (str(tmp_path), "--cards", "two")
    ranks = start_ranks(scripts, RANKS, tmp_path, *arguments, environment=fake_cards(tmp_path))
    assert_ranks_end_well(ranks)
    report = load(tmp_path / "energy" / "energy_report.json")
    assert_both_ranks_finished(report)
    assert_each_card_counted_once(report, "two")


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
