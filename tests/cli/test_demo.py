"""The demos report missing packages, and have a report after they are killed.

``tests/integrations/documented.py`` tests that they train and print their report, in the lanes of
their frameworks.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.cli import demo, main
from energy_callbacks.core.errors import EnergyCallbacksError
from energy_callbacks.core.extras import install_command
from energy_callbacks.report import EnergyReport, build
from tests.core.waiting import until

RUN = Path("demo/lightning_logs/version_0/energy")
ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "integrations"))),
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",  # threads of two processes would compete for two cores
}


def needs(framework: str) -> None:
    """Skip the test if a package of a demo is not installed."""
    for package in demo.DEMOS[framework].packages:
        if not find_spec(package):
            pytest.skip(f"{package} is not installed")


class Hidden:
    """An import finder for which a package is not installed."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise for the package, as the import system expects."""
        if name == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that hides a package."""

    def one(package: str) -> None:
        prefixes = (package, "energy_callbacks.cli.demos.", "energy_callbacks_")
        for name in [name for name in sys.modules if name.startswith(prefixes)]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "meta_path", [Hidden(package), *sys.meta_path])
        monkeypatch.setenv("KERAS_BACKEND", "tensorflow")  # else the demo sets it for good

    return one


@pytest.mark.parametrize(
    ("framework", "missing", "extra"),
    [
        ("lightning", "lightning", "demo"),
        ("keras", "keras", "demo,keras"),
        ("huggingface", "accelerate", "huggingface"),
    ],
)
def test_a_missing_framework(
    framework: str,
    missing: str,
    extra: str,
    hide: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If a package is missing, the command says in one line what to install."""
    hide(missing)
    assert main(["demo", "--framework", framework]) == 1
    assert capsys.readouterr().err == (
        f"energy-callbacks demo: {missing!r} is not installed; run: {install_command(extra)}\n"
    )


WITHOUT = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
from energy_callbacks.cli import main
sys.exit(main(["demo", "--framework", "keras"]))
"""


def test_a_missing_backend() -> None:
    """The user chooses Keras' backend: the message names it, and no extra."""
    needs("keras")
    answer = subprocess.run(  # Keras supports one backend per process
        [sys.executable, "-c", WITHOUT],
        env=ENVIRONMENT | {"KERAS_BACKEND": "tensorflow"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 1
    last = answer.stderr.splitlines()[-1]
    assert last.startswith("energy-callbacks demo: Keras' backend 'tensorflow' is not installed")
    assert "KERAS_BACKEND" in last


@pytest.mark.parametrize(
    "option",
    [("--data", "digits"), ("--data-dir", "x"), ("--batch-size", "8"), ("--max-steps", "5")],
)
def test_options_of_models_are_not_ignored(
    option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without ``--model``, an option that needs it is an error before any training."""
    assert main(["demo", "--framework", "huggingface", *option]) == 2
    assert f"{option[0]} needs --model" in capsys.readouterr().err


def test_all_frameworks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--framework all`` runs every demo in its own process, also after one has failed."""
    commands: list[list[str]] = []

    def pretend(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, returncode=1 if "keras" in command else 0)

    monkeypatch.setattr(demo.subprocess, "run", pretend)
    assert main(["demo", "--framework", "all", "--out", "place", "--epochs", "3"]) == 1
    assert [command[-1] for command in commands] == ["lightning", "keras", "huggingface"]
    assert all({"--out", "place", "--epochs", "3"} < set(command) for command in commands)


def test_reports_of_all_frameworks_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report of each demo is under its framework; that of a failed demo is null."""

    def pretend(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        assert {"--json", "--quiet"} < set(command)
        code = 1 if "keras" in command else 0
        return subprocess.CompletedProcess(command, code, stdout=b"" if code else b'{"a": 1}\n')

    monkeypatch.setattr(demo.subprocess, "run", pretend)
    assert main(["demo", "--framework", "all", "--json", "-q"]) == 1
    reports = json.loads(capsys.readouterr().out)
    assert reports == {"lightning": {"a": 1}, "keras": None, "huggingface": {"a": 1}}


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
    """An installed backend is used if the user has chosen none."""
    monkeypatch.setenv("KERAS_BACKEND", chosen or "")
    if chosen is None:
        monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setattr(demo, "find_spec", lambda name: name in installed or None)
    demo._choose_backend()
    assert os.environ["KERAS_BACKEND"] == backend


KILLED = """
import sys
from tests.integrations.no_tensorflow import keep_tensorflow_out
keep_tensorflow_out()
from energy_callbacks.cli import main
main(["demo", "--epochs", "100000", "--out", "demo"])
"""


@pytest.mark.slow(reason="a process that imports Lightning and trains for seconds until kill -9")
def test_a_killed_demo_has_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While it trains, its files are at most one second behind; kill -9 loses none of them."""
    needs("lightning")
    with subprocess.Popen(
        [sys.executable, "-c", KILLED],
        cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        before = until(lambda: _up_to_date(tmp_path / RUN))
        process.send_signal(signal.SIGKILL)
        process.wait()
        killed_unix_s = time.time()
    assert main(["report", str(tmp_path / RUN)]) == 0
    assert "cut off" in capsys.readouterr().out
    report = build(tmp_path / RUN)
    lived_s = killed_unix_s - report.run.started_unix_s
    assert before.run.duration_s <= report.run.duration_s <= lived_s
    assert before.throughput.steps <= report.throughput.steps
    assert report.energy.host.energy_j is not None


def _up_to_date(folder: Path) -> EnergyReport | None:
    """Return the report of a run so far, if it has steps and lacks at most one second."""
    now_unix_s = time.time()
    try:
        report = build(folder)
    except EnergyCallbacksError:  # there is no journal yet
        return None
    lived_s = now_unix_s - report.run.started_unix_s
    return report if report.throughput.steps and report.run.duration_s >= lived_s - 1.0 else None


def test_no_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    """--epochs 0 is refused."""
    assert main(["demo", "--epochs", "0"]) == 2
    assert "--epochs" in capsys.readouterr().err
