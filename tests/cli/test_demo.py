"""The demo trains for real, prints its report, and survives being killed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from energy_callbacks.cli import main
from energy_callbacks.report import build

pytest.importorskip("lightning")
pytest.importorskip("sklearn")

DEMO = [sys.executable, "-m", "energy_callbacks", "demo"]
RUN = Path("demo/lightning_logs/version_0/energy")


def test_the_demo(tmp_path: Path) -> None:
    """It ends well, prints the report and where to find the curves, and writes where it says."""
    command = [*DEMO, "--epochs", "2", "--out", "demo", "--country", "DEU"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "Energy in total" in shown
    assert "tensorboard --logdir demo" in shown
    report = build(tmp_path / RUN)
    assert report.run.status == "finished"
    assert report.throughput.samples == 2 * 1438
    assert (tmp_path / RUN / "energy_report.html").is_file()


def test_a_killed_demo_has_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After kill -9 in the middle the report is there, a second short at most, and says cut off."""
    command = [*DEMO, "--epochs", "100000", "--out", "demo"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        _wait_for(lambda: list((tmp_path / RUN).glob("attempts/1/*.jsonl")))
        time.sleep(4.0)  # real time on purpose: another process has no virtual clock
        process.send_signal(signal.SIGKILL)
        killed_unix_s = time.time()
    assert main(["report", str(tmp_path / RUN)]) == 0
    assert "cut off" in capsys.readouterr().out
    report = build(tmp_path / RUN)
    lived_s = killed_unix_s - report.run.started_unix_s
    assert lived_s - 1.0 <= report.run.duration_s <= lived_s
    assert report.throughput.steps > 0
    assert report.energy.host.energy_j is not None


def test_no_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    """--epochs 0 is refused."""
    assert main(["demo", "--epochs", "0"]) == 2
    assert "--epochs" in capsys.readouterr().err


def _wait_for(is_there: object, patience_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + patience_s
    while not is_there():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
