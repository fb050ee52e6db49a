"""The default folder of a run."""

import time
from pathlib import Path

import pytest

from energy_callbacks.accounting.journal.launch import TrainingProcess, default_folder


@pytest.fixture
def one_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory, and a constant clock."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda _: "20261122-120000")
    monkeypatch.delenv("MASTER_PORT", raising=False)


@pytest.mark.usefixtures("one_second")
def test_trainings_that_start_in_the_same_second_have_folders_of_their_own() -> None:
    """As for the tasks of a job array."""
    folders = [default_folder(TrainingProcess()) for _ in range(3)]
    assert [folder.name for folder in folders] == [
        "20261122-120000", "20261122-120000-2", "20261122-120000-3"
    ]  # fmt: skip
    assert all(folder.is_dir() for folder in folders)


@pytest.mark.usefixtures("one_second")
def test_ranks_of_one_launch_share_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named after their port if the launcher sets one."""
    ranks = [TrainingProcess(rank=rank, world_size=2) for rank in range(2)]
    assert {default_folder(rank) for rank in ranks} == {Path("energy_runs/20261122-120000")}
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert {default_folder(rank) for rank in ranks} == {Path("energy_runs/port-29500")}


@pytest.mark.usefixtures("one_second")
def test_where_no_folder_can_be_made_there_is_a_name() -> None:
    """The check of the journal's folder reports the problem."""
    Path("energy_runs").write_text("a file")
    assert default_folder(TrainingProcess()) == Path("energy_runs/20261122-120000")
