"""What the documentation shows of Keras."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs import examples
from tests.integrations.documented import Demo, Documented

# Of a batch of 64 four fifths are one, and there is no short one to compile.
SAMPLES = 80


@pytest.fixture(autouse=True)
def _few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the first digits only."""
    # Other lanes read this file, too: without what only these tests need.
    import sklearn.datasets
    from sklearn.utils import Bunch

    from energy_callbacks.cli.demos import digits_keras

    whole = sklearn.datasets.load_digits

    def load_digits() -> Any:
        return Bunch(**{name: whole()[name][:SAMPLES] for name in ("data", "images", "target")})

    monkeypatch.setattr(sklearn.datasets, "load_digits", load_digits)
    monkeypatch.setattr(digits_keras, "load_digits", load_digits)


@pytest.fixture(autouse=True)
def _no_charts_of_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the charts, which are not checked here."""
    for name in ("page", "plots"):
        monkeypatch.setattr(f"energy_callbacks.compare.{name}.CHARTS", ())


class TestDocs(Documented):
    framework = "keras"
    examples = ("keras_digits.py",)
    demo = Demo(folder="keras/version_0", samples=4 * SAMPLES // 5, curve="epoch_loss")


def test_the_study_of_quantisation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short study ends with a comparison."""
    options = ("--repeats", "2", "--seconds", "0.1", "--units", "32")
    examples.run("quantisation_study.py", tmp_path, monkeypatch, *options, leaves="comparison.html")


def test_the_study_of_frameworks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short study runs each backend in turn, and ends with a comparison.

    All trainings run here, on the backend of this process. It finds two backends.
    """
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch" else find(name)
    )
    asked: list[str] = []
    start = subprocess.run

    def train(command: list[str], **settings: Any) -> Any:
        if command[0] != sys.executable:
            return start(command, **settings)
        asked.append(settings["env"]["KERAS_BACKEND"])
        with monkeypatch.context() as patch:
            examples.run("framework_study.py", tmp_path, patch, *command[2:])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", train)
    options = ("--repeats", "2", "--epochs", "1")
    backends = examples.run("framework_study.py", tmp_path, monkeypatch, *options)["BACKENDS"]
    assert len(backends) == 2
    assert asked == [*backends, *reversed(backends)]
    assert list(tmp_path.rglob("comparison.html"))


@pytest.mark.slow(reason="a process that imports a framework for each training")
def test_the_study_of_frameworks_in_processes(tmp_path: Path) -> None:
    """Run it like a user."""
    command = [sys.executable, str(examples.EXAMPLES / "framework_study.py")]
    subprocess.run([*command, "--repeats", "1", "--epochs", "1"], cwd=tmp_path, check=True)
    assert list(tmp_path.rglob("comparison.html"))
