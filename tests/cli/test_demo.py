"""The demos train for real, print their report, and survive being killed."""

import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from energy_callbacks.cli import demo, main
from energy_callbacks.report import build

DEMO = [sys.executable, "-m", "energy_callbacks", "demo"]
RUN = Path("demo/lightning_logs/version_0/energy")
ENVIRONMENT = os.environ | {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",  # two busy processes on two cores wait for each other's threads
}


def needs(framework: str) -> None:
    """Skip where a demo's packages are not installed."""
    for package in demo.DEMOS[framework].packages:
        if not find_spec(package):
            pytest.skip(f"{package} is not installed")


@pytest.mark.framework
@pytest.mark.parametrize(
    ("framework", "run", "samples", "curve"),
    [
        ("lightning", RUN, 1438, "train_loss"),
        ("keras", Path("demo/keras/version_0/energy"), 1437, "epoch_loss"),
        ("huggingface", Path("demo/huggingface/version_0/energy"), 3278, "train/loss"),
    ],
)
def test_the_demo(framework: str, run: Path, samples: int, curve: str, tmp_path: Path) -> None:
    """It ends well, prints the report and where to find the curves, and writes where it says."""
    needs(framework)
    options = ["--framework", framework, "--epochs", "1", "--out", "demo", "--country", "DEU"]
    done = subprocess.run(
        [*DEMO, *options],
        cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Energy in total" in done.stdout
    assert "tensorboard --logdir demo" in done.stdout
    assert "Traceback" not in done.stderr
    report = build(tmp_path / run)
    assert report.run.status == "finished"
    assert report.run.framework == framework
    assert report.throughput.samples == samples
    assert (tmp_path / run / "energy_report.html").is_file()
    assert {curve, "energy/total_wh"} <= tags(tmp_path / run.parent)


def tags(folder: Path) -> set[str]:
    """Names of all curves in the event files below a folder."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    return {
        value.tag
        for path in folder.rglob("events.out.tfevents.*")
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
    }


WITHOUT = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
from energy_callbacks.cli import main
sys.exit(main(["demo", "--framework", sys.argv[2]]))
"""


@pytest.mark.parametrize(
    ("framework", "missing", "extra"),
    [
        ("lightning", "lightning", "demo"),
        ("keras", "keras", "demo,keras"),
        ("huggingface", "accelerate", "huggingface"),
    ],
)
def test_a_missing_framework(framework: str, missing: str, extra: str) -> None:
    """Where a package is missing the command says in one line what to install."""
    answer = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing, framework],
        env=ENVIRONMENT | {"KERAS_BACKEND": "tensorflow"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1] == (
        f"energy-callbacks demo: {missing!r} is not installed; "
        f"run: pip install 'energy-callbacks[{extra}]'"
    )


def test_a_missing_backend() -> None:
    """Keras' backend is the user's choice: the command says so, and names no extra."""
    answer = subprocess.run(
        [sys.executable, "-c", WITHOUT, "tensorflow", "keras"],
        env=ENVIRONMENT | {"KERAS_BACKEND": "tensorflow"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 1
    last = answer.stderr.splitlines()[-1]
    assert last.startswith("energy-callbacks demo: Keras' backend 'tensorflow' is not installed")
    assert "KERAS_BACKEND" in last


def test_all_frameworks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--framework all`` runs each in a process of its own, also after one that failed."""
    commands: list[list[str]] = []

    def pretend(command: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, returncode=1 if "keras" in command else 0)

    monkeypatch.setattr(demo.subprocess, "run", pretend)
    assert main(["demo", "--framework", "all", "--out", "place", "--epochs", "3"]) == 1
    assert [command[-1] for command in commands] == ["lightning", "keras", "huggingface"]
    assert all({"--out", "place", "--epochs", "3"} < set(command) for command in commands)


@pytest.mark.parametrize(
    ("installed", "chosen", "backend"),
    [
        ({"torch"}, None, "torch"),
        ({"torch", "jax"}, None, "jax"),
        ({"torch", "tensorflow"}, "torch", "torch"),
        (set(), None, "tensorflow"),
    ],
)
def test_the_backend_of_keras(
    installed: set[str], chosen: str | None, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed backend is taken where the user chose none."""
    monkeypatch.setenv("KERAS_BACKEND", chosen or "")
    if chosen is None:
        monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setattr(demo, "find_spec", lambda name: name in installed or None)
    demo._choose_backend()
    assert os.environ["KERAS_BACKEND"] == backend


def test_a_killed_demo_has_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After kill -9 in the middle the report is there, a second short at most, and says cut off."""
    needs("lightning")
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
