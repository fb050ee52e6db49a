"""No secret of a command line reaches a file, and the command can be left out."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks import importers
from energy_callbacks.accounting.journal import journal
from energy_callbacks.core.config import NO_COMMAND_VARIABLE, EnergyConfig
from energy_callbacks.importers import journal_lines
from energy_callbacks.importers.protocol import Log
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.report import build, save
from energy_callbacks.testing import FakeClock
from tests.report import journals

ARGUMENTS = ["train.py", "--api-key", "X1zvQ", "--lr", "1e-3", "https://ann:X1zvQ@host/data"]
REDACTED = "train.py --api-key REDACTED --lr 1e-3 https://ann:REDACTED@host/data"


def measured(folder: Path, config: EnergyConfig | None = None) -> Path:
    """Measure a training that ends by an error with a secret in its message."""
    config = replace(config or EnergyConfig(), report_dir=folder)
    with (
        pytest.raises(OSError, match="X1zvQ"),
        EnergyMeter(config=config, sources=[], clock=FakeClock()) as meter,
    ):
        raise OSError("no answer from https://ann:X1zvQ@host/data")
    meter.save_report()
    return folder


@pytest.fixture(autouse=True)
def _arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ARGUMENTS)


def test_no_file_of_a_run_has_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journal, report in all formats, tags and environment have it redacted; the rest stays."""
    monkeypatch.setenv("KUBERNETES_POD_NAME", "hf_X1zvQabcdefghijklmnop")
    config = EnergyConfig(
        tags={"token": "X1zvQ", "team": "vision"}, run_name="sk-X1zvQ0123456789abc"
    )
    measured(tmp_path, config)
    report = build(tmp_path)
    save(report, tmp_path, ("json", "html", "txt"))

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {".jsonl", ".html", ".json", ".txt"} <= {path.suffix for path in files}
    assert [path for path in files if b"X1zvQ" in path.read_bytes()] == []
    assert report.run.command is not None
    assert report.run.command.endswith(REDACTED)
    assert report.run.tags == {"token": "REDACTED", "team": "vision"}
    assert report.run.error == "OSError: no answer from https://ann:REDACTED@host/data"


def test_a_query_finds_no_secret(tmp_path: Path) -> None:
    """The column ``command`` is that of the report."""
    pytest.importorskip("duckdb")
    from energy_callbacks.query import query

    measured(tmp_path)
    [(command, error)] = query("select command, error from reports", tmp_path).rows
    assert command.endswith(REDACTED)
    assert "X1zvQ" not in error


def test_journals_with_secrets_make_reports_without(tmp_path: Path) -> None:
    """A journal of an earlier version is redacted when it is read."""
    path = journals.write(tmp_path, journals.Attempt())
    path.write_text(path.read_text().replace("train.py --lr 1e-3", "train.py --token X1zvQ"))
    report = build(tmp_path)
    assert report.run.command == "python train.py --token REDACTED"
    assert report.environment["command"] == "python train.py --token REDACTED"


def test_commands_in_logs_of_other_programs_are_redacted(tmp_path: Path) -> None:
    """The journal of an imported log is redacted, too."""
    file = tmp_path / "log.csv"
    file.write_text("")
    log = Log(path=file, choice=None, head="")
    header = journal_lines.header(log, "other", command="train.py --token X1zvQ")
    assert header["environment"]["command"] == "train.py --token REDACTED"
    assert importers.located(file) == (file, None)


@pytest.mark.parametrize(
    ("set_off", "config"),
    [
        (lambda _: None, EnergyConfig(record_command=False)),
        (lambda patch: patch.setenv(NO_COMMAND_VARIABLE, "1"), EnergyConfig()),
    ],
    ids=["setting", "variable"],
)
def test_the_command_can_be_left_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    set_off: Callable[[pytest.MonkeyPatch], object],
    config: EnergyConfig,
) -> None:
    """Journal and report then have no command at all."""
    set_off(monkeypatch)
    measured(tmp_path, config)
    [path] = journal.find(tmp_path)
    assert journal.header(path)["environment"]["command"] is None
    assert build(tmp_path).run.command is None
    assert b"train.py" not in path.read_bytes()
