"""Files and folders are created for their owner only, and links are never followed."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.claim import claim_attempt
from energy_callbacks.accounting.journal.journal import JournalWriter
from energy_callbacks.accounting.journal.launch import new_folder
from energy_callbacks.accounting.journal.raw_readings import RawReadings
from energy_callbacks.core import atomic_files
from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.matrix.attempts import Results
from energy_callbacks.matrix.engines import local
from energy_callbacks.matrix.plan import MatrixJob
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.testing import FakeClock

JOB = MatrixJob(configuration="a", parameters={"lr": "1"}, repeat=1, words=("true",))


@pytest.fixture
def _no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def measure(folder: Path) -> None:
    """Measure nothing for a while, with every file that a run may write."""
    config = EnergyConfig(report_dir=folder, raw_readings=True)
    with EnergyMeter(config=config, sources=[], clock=FakeClock()) as meter:
        meter.log(1)
    meter.save_report()


def run_job(folder: Path) -> None:
    """Run a job of a matrix that prints nothing."""
    results = Results(folder=folder / "results", working_folder=Path("/"))
    with results.locked():
        attempt = results.begin(JOB)
        output = attempt / "output.txt"
        local.launch(["true"], output=output, cwd=attempt, env={}).wait()
        results.end(attempt, 0)


@pytest.mark.usefixtures("_no_umask")
@pytest.mark.parametrize(
    "create",
    [
        measure,
        run_job,
        lambda folder: atomic_files.write(folder / "x/report.json", "{}"),
        lambda folder: JournalWriter(folder / "x/a-0.jsonl").close(),
        lambda folder: journal.check_writable(folder / "x/y"),
        lambda folder: claim_attempt(folder / "x/y", "host", 0, None),
        lambda folder: new_folder(folder / "x/y"),
    ],
)
def test_nobody_else_can_write_a_run_folder(
    tmp_path: Path, create: Callable[[Path], object]
) -> None:
    """Without a umask, others can read, and only the owner can write."""
    create(tmp_path / "runs")
    found = sorted(tmp_path.rglob("*"))
    assert found
    loose = {path.name: oct(path.stat().st_mode) for path in found if path.stat().st_mode & 0o022}
    assert loose == {}


def test_a_stricter_umask_counts(tmp_path: Path) -> None:
    """The umask removes permissions, as for any other program."""
    before = os.umask(0o077)
    try:
        atomic_files.write(tmp_path / "x/report.json", "{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "x/report.json").stat().st_mode) == 0o600


def test_a_temporary_file_is_new(tmp_path: Path) -> None:
    """A link with the name that the temporary file had before is neither followed nor removed."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    link = tmp_path / f".report.json.{os.getpid()}"
    link.symlink_to(victim)

    atomic_files.write(tmp_path / "report.json", "{}")

    assert victim.read_text() == "precious"
    assert link.is_symlink()


@pytest.mark.parametrize("target", ["victim", "nowhere"])
def test_a_link_is_replaced_and_not_followed(tmp_path: Path, target: str) -> None:
    """Reports replace links with their names; the files behind the links do not change."""
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "report.json").symlink_to(tmp_path / target)
    (tmp_path / "output.txt").symlink_to(tmp_path / target)

    atomic_files.write(tmp_path / "report.json", "{}")
    with os.fdopen(atomic_files.open_new(tmp_path / "output.txt"), "w") as file:
        file.write("new")

    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()
    assert (tmp_path / "report.json").read_text() == "{}"
    assert (tmp_path / "output.txt").read_text() == "new"


@pytest.mark.parametrize("target", ["victim", "nowhere"])
@pytest.mark.parametrize(
    "write", [JournalWriter, lambda path: RawReadings(path.with_suffix(".jsonl"), 0.0, 0.0).close()]
)
def test_a_journal_that_is_a_link_is_refused(
    tmp_path: Path, target: str, write: Callable[[Path], object]
) -> None:
    """The message names the file; the file behind the link does not change."""
    (tmp_path / "victim").write_text("precious")
    path = tmp_path / "host-0.readings"
    path.symlink_to(tmp_path / target)

    with pytest.raises(OSError, match=r"symbolic link, which is not followed.*host-0\.readings"):
        write(path)

    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    """The old file stays, and the temporary file is removed."""
    folder = tmp_path / "report.json"
    folder.mkdir()
    with pytest.raises(IsADirectoryError) as raised:
        atomic_files.write(folder, "{}")
    assert raised.value.filename == str(folder)  # not that of the temporary file
    assert list(tmp_path.iterdir()) == [folder]
    with pytest.raises(OSError, match=r"'\.'"):
        atomic_files.write(Path(), "{}")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_an_error_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operating system names no file if there is no space for its content."""
    monkeypatch.setattr(atomic_files, "open_new", lambda _: os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(OSError, match=r"No space left on device: .*report\.json"):
        atomic_files.write(tmp_path / "report.json", "{}")


def test_a_long_name_can_be_written(tmp_path: Path) -> None:
    """The name of the temporary file is not too long for the file system."""
    atomic_files.write(tmp_path / ("a" * 255), "{}")


def test_a_locked_file_is_locked_until_it_is_closed(tmp_path: Path) -> None:
    """Another open file of the same path cannot be locked meanwhile."""
    first, second = (atomic_files.open_to_append(tmp_path / "lock") for _ in range(2))
    atomic_files.lock(first)
    with pytest.raises(BlockingIOError):
        atomic_files.lock(second)
    os.close(first)
    atomic_files.lock(second)
    os.close(second)
