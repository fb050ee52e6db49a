"""Bad input is refused with a clear word before the first step; good input is typed."""

import signal
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

from lightning.pytorch.cli import LightningCLI

from energy_callbacks import EnergyConfig, EnergyMeter, SourceUnavailable
from energy_callbacks.callback import EnergyCallback
from energy_callbacks.lightning import GpuEnergyCallback
from energy_callbacks.testing import FakeClock
from tests.integrations.lightning.training import TinyModule, callback, loader, trainer
from tests.integrations.processes import Script, Scripts, wait


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"country": "Atlantis"}, "Atlantis"),
        ({"sample_interval_s": -1}, "sample_interval_s"),
        ({"log_every_n_steps": 0}, "log_every_n_steps"),
        ({"devices": [-1]}, "negative"),
        ({"devices": []}, "contains no GPU"),
        ({"pue": 0.5}, "pue"),
        ({"region": "Bavaria"}, "country"),
    ],
)
def test_wrong_settings_are_refused_at_construction(settings: dict, message: str) -> None:
    """The message has the setting and its value."""
    with pytest.raises(ValueError, match=message):
        GpuEnergyCallback(**settings)


def test_what_should_count_must_be_a_function() -> None:
    """The error is raised at construction, not as a warning in the first batch."""
    for name in ("batch_size_fn", "tokens_fn"):
        with pytest.raises(TypeError, match=name):
            GpuEnergyCallback(**{name: 5})


def test_a_meter_and_settings_together_are_refused() -> None:
    """No setting is silently ignored."""
    with pytest.raises(ValueError, match="meter="):
        GpuEnergyCallback(meter=EnergyMeter(), country="DEU")


def test_a_device_that_is_not_there_is_refused_before_the_first_step(tmp_path: Path) -> None:
    """devices=[7] ends fit before any batch if that card does not exist."""
    module = TinyModule(FakeClock())
    with pytest.raises((ValueError, SourceUnavailable), match=r"devices=\[7\]|index 7"):
        trainer(tmp_path, GpuEnergyCallback(devices=[7])).fit(module, loader())
    assert module.trainer.global_step == 0


def test_an_unwritable_folder_is_refused_before_the_first_step(tmp_path: Path) -> None:
    """The run folder is a file, because tests may run as root."""
    (tmp_path / "taken").write_text("a file")
    clock = FakeClock()
    ours = callback(clock, report_dir=tmp_path / "taken")
    lightning = trainer(tmp_path, ours)
    with pytest.raises(PermissionError, match="taken"):
        lightning.fit(TinyModule(clock), loader())
    assert lightning.global_step == 0


class OfAnotherFramework(EnergyCallback):
    """A callback of a framework that is not Lightning."""

    framework_name = "Keras"


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (GpuEnergyCallback, TypeError, r"needs an object.* as in GpuEnergyCallback\(\)"),
        (
            OfAnotherFramework(),
            AttributeError,
            "of Keras has no .* from energy_callbacks.lightning",
        ),
    ],
)
def test_a_wrong_entry_of_callbacks_ends_fit(
    given: Any, kind: type[Exception], message: str, tmp_path: Path
) -> None:
    """Before the first step, with a message that says what to pass instead."""
    module = TinyModule(FakeClock())
    with pytest.raises(kind, match=message):
        trainer(tmp_path, given).fit(module, loader())
    assert module.trainer.global_step == 0


@pytest.mark.parametrize("wrap", [lambda cb: [cb], lambda cb: cb], ids=["list", "bare"])
def test_pytorch_lightning_takes_it_too(tmp_path: Path, wrap: object) -> None:
    """The older package's Trainer calls our callback, with or without a list."""
    old = pytest.importorskip("pytorch_lightning")
    import torch

    class OldModule(old.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: list, batch_idx: int) -> torch.Tensor:
            clock.advance(0.1)
            return self.layer(batch[0]).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    clock = FakeClock()
    ours = callback(clock)
    old.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, default_root_dir=tmp_path,
        enable_progress_bar=False, enable_checkpointing=False, callbacks=wrap(ours),
    ).fit(OldModule(), loader())  # fmt: skip
    assert ours.report().throughput.steps == 40


def test_lightning_cli_understands_the_arguments(tmp_path: Path) -> None:
    """LightningCLI creates the callback from typed arguments, and rejects a wrong one."""

    class Module(TinyModule):
        def __init__(self) -> None:
            super().__init__(FakeClock())

    arguments = [
        "--trainer.callbacks+=energy_callbacks.lightning.GpuEnergyCallback",
        "--trainer.callbacks.country=DEU",
        "--trainer.callbacks.devices=[0]",
        "--trainer.callbacks.pue=1.2",
        f"--trainer.default_root_dir={tmp_path}",
        "--trainer.accelerator=cpu",
    ]
    cli = LightningCLI(Module, run=False, args=arguments, save_config_callback=None)
    [ours] = [c for c in cli.trainer.callbacks if isinstance(c, GpuEnergyCallback)]
    assert ours._meter.config == EnergyConfig(country="DEU", devices=[0], pue=1.2)
    with pytest.raises(SystemExit):
        LightningCLI(Module, run=False, args=[*arguments, "--trainer.callbacks.pue=much"])


def test_without_the_new_package(tmp_path: Path, scripts: Scripts) -> None:
    """Everything works if only pytorch_lightning is installed."""
    pytest.importorskip("pytorch_lightning")
    script = Script(module="tests.integrations.lightning.old_package_script", folder=tmp_path)
    assert wait(scripts.start(script)) == 0, script.output


@pytest.mark.parametrize("setting", ["batch_size_fn", "tokens_fn"])
def test_a_count_that_fails_is_left_out(tmp_path: Path, setting: str) -> None:
    """A batch_size_fn or tokens_fn that raises causes one warning; its figures are missing."""

    def broken(batch: object) -> int:
        raise KeyError("no such thing")

    clock = FakeClock()
    ours = callback(clock, **{setting: broken})
    lightning = trainer(tmp_path, ours)
    with pytest.warns(UserWarning, match=f"{setting} could not count"):
        lightning.fit(TinyModule(clock), loader(8))
    assert lightning.global_step == 16
    assert ours.report().throughput.steps == 16
    assert (ours.report().throughput.samples is None) == (setting == "batch_size_fn")


def fail(*_: Any) -> int:
    """Fail, like a function that does not know this kind of batch."""
    raise TypeError("not this kind of batch")


def test_warnings_may_be_errors(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With ``python -W error``, warnings of ours are logged, and do not end the training."""
    clock = FakeClock()
    ours = callback(clock, batch_size_fn=fail)
    lightning = trainer(tmp_path, ours, max_epochs=1, limit_val_batches=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*could not count a batch.*")
        lightning.fit(TinyModule(clock), loader())
    assert lightning.global_step == 40
    assert "could not count a batch" in caplog.text
    assert ours.report().throughput.steps == 40


class PreemptedError(Exception):
    """What a handler of the user raises."""


@pytest.mark.parametrize("setting", ["batch_size_fn", "tokens_fn"])
def test_a_signal_while_samples_are_counted(tmp_path: Path, setting: str) -> None:
    """What the handler raises ends the training; it is not an error of the function."""

    def handler(*_: Any) -> None:
        raise PreemptedError

    def count(batch: Any) -> int:
        signal.raise_signal(signal.SIGTERM)
        return 4

    clock = FakeClock()
    ours = callback(clock, **{setting: count})
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(PreemptedError):
            trainer(tmp_path, ours).fit(TinyModule(clock), loader())
    finally:
        signal.signal(signal.SIGTERM, before)
