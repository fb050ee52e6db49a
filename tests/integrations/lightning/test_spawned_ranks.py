"""The report of ranks that were children, from what the parent can find."""

import os
from pathlib import Path

import pytest

pytest.importorskip("lightning")

from energy_callbacks import JournalError
from energy_callbacks.accounting.journal import journal
from energy_callbacks.lightning import GpuEnergyCallback
from tests.integrations.lightning.training import trainer


def begun(folder: Path, run_id: str, *, ppid: int | None = None, unix_s: float = 1e9) -> None:
    """Write a journal of a child of this process, or of another one."""
    writer = journal.JournalWriter(journal.path_for(folder, 1, run_id, 0))
    form = {"type": "header", "format": journal.FORMAT, "version": journal.VERSION}
    who = {"run_id": run_id, "attempt": 1, "host": run_id, "rank": 0}
    writer.write(form | who | {"unix_s": unix_s, "ppid": ppid or os.getpid()})
    writer.close()


def test_the_newest_child_is_reported(tmp_path: Path) -> None:
    """In any version of the logs, but never the run of another process."""
    ours = GpuEnergyCallback()
    made = trainer(tmp_path, ours)
    logs = Path(made.log_dir).parent
    begun(logs / "version_3" / "energy", "older")
    begun(logs / "version_4" / "energy", "newer", unix_s=2e9)
    begun(logs / "version_5" / "energy", "foreign", ppid=1, unix_s=3e9)
    assert ours.report().run.run_id == "newer"


def test_a_chosen_folder_needs_no_trainer(tmp_path: Path) -> None:
    """The callback has the folder, and ignores a previous run in it."""
    ours = GpuEnergyCallback(report_dir=tmp_path)
    begun(tmp_path, "foreign", ppid=1)
    with pytest.raises(JournalError, match="never started"):
        _ = ours.report()
    begun(tmp_path, "child", unix_s=2e9)
    assert ours.report().run.run_id == "child"


def test_without_any_trainer_nothing_is_invented(tmp_path: Path) -> None:
    """The error says that the callback was never started."""
    with pytest.raises(JournalError, match="never started"):
        _ = GpuEnergyCallback().report()
