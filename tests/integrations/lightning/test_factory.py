"""Zero-code use: Lightning finds our entry point, and the environment decides."""

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("lightning")

import lightning.pytorch as pl

from energy_callbacks.lightning import GpuEnergyCallback
from energy_callbacks.report import load
from energy_callbacks.testing import FakeClock
from tests.integrations.lightning.training import TinyModule, callback, loader, trainer

ROOT = Path(__file__).parents[3]
GROUPS = ("lightning.pytorch.callbacks_factory", "pytorch_lightning.callbacks_factory")
VARIABLE = "ENERGY_CALLBACKS_LIGHTNING"


def declared() -> dict[str, dict[str, str]]:
    """Return the entry points of pyproject.toml by group."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the metadata of this distribution with the entry points of the project."""
    folder = tmp_path / "site" / "energy_callbacks-0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: energy-callbacks\nVersion: 0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in declared().items()
    ]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("ENERGY_CALLBACKS_DISABLED", raising=False)


def ours(made: pl.Trainer) -> list[GpuEnergyCallback]:
    """Return our callbacks in a trainer."""
    return [one for one in made.callbacks if isinstance(one, GpuEnergyCallback)]


@pytest.mark.parametrize("group", GROUPS)
def test_the_declared_entry_points_resolve(group: str) -> None:
    """Both Lightning packages find one factory, which returns nothing by default."""
    (point,) = importlib.metadata.entry_points(group=group, name="energy_callbacks")
    assert point.value == declared()[group]["energy_callbacks"]
    assert point.load()() == []


@pytest.mark.parametrize("value", [None, "", "0", "false"])
def test_it_is_off_unless_the_environment_says_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    """A Trainer is unchanged by default."""
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    assert ours(trainer(tmp_path)) == []


def test_switched_off_beats_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENERGY_CALLBACKS_DISABLED=1 wins."""
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setenv("ENERGY_CALLBACKS_DISABLED", "1")
    assert ours(trainer(tmp_path)) == []


def test_off_it_imports_nothing() -> None:
    """It imports neither the core, nor the adapter, nor the other Lightning, nor NumPy."""
    code = (
        "import sys; from energy_callbacks_lightning.factory import callbacks; "
        "assert callbacks() == []; "
        "print([name for name in sys.modules if name.partition('.')[0] in "
        "('energy_callbacks', 'lightning', 'pytorch_lightning', 'torch', 'numpy')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'integrations'}"},
    )  # fmt: skip
    assert found.stdout.strip() == "[]"


def test_on_it_measures_a_training_that_does_not_know_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any code there is a report beside the logs."""
    monkeypatch.setenv(VARIABLE, "1")
    made = trainer(tmp_path)
    assert len(ours(made)) == 1
    made.fit(TinyModule(FakeClock()), loader())
    report = load(Path(made.log_dir) / "energy" / "energy_report.json")
    assert (report.run.status, report.throughput.steps) == ("finished", 80)


def test_beside_one_of_the_user_it_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No RuntimeError at construction, one attempt, and all hooks of other callbacks."""
    monkeypatch.setenv(VARIABLE, "1")
    seen: list[str] = []

    class Other(pl.Callback):
        def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
            seen.append(stage)

    clock = FakeClock()
    own = callback(clock)
    made = trainer(tmp_path, own, Other(), Other())
    made.fit(TinyModule(clock), loader())
    assert ours(made) == [own]
    assert seen == ["fit", "fit"]
    assert [attempt.attempt for attempt in own.report().attempts] == [1]


@pytest.mark.parametrize("is_automatic_first", [True, False])
def test_checkpoints_resume_with_either(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
    *,
    is_automatic_first: bool,
) -> None:
    """One run with two attempts, without a Lightning warning about a missing callback."""
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setenv("ENERGY_CALLBACKS_RUN_DIR", str(tmp_path / "energy"))
    own = [] if is_automatic_first else [GpuEnergyCallback()]
    first = trainer(tmp_path, *own, max_epochs=1)
    first.fit(TinyModule(FakeClock()), loader())
    others = [GpuEnergyCallback()] if is_automatic_first else []
    second = trainer(tmp_path, *others)
    checkpoint = first.checkpoint_callback.best_model_path
    second.fit(TinyModule(FakeClock()), loader(), ckpt_path=checkpoint)
    report = ours(second)[0].report()
    assert report.run.run_id == ours(first)[0].report().run.run_id
    assert [(one.attempt, one.steps) for one in report.attempts] == [(1, 40), (2, 40)]
    assert not [str(one.message) for one in recwarn if "callbacks used to create" in str(one)]
