"""Metrics in Lightning are reported once, when they are new, without waiting; GPUs in use."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("lightning")

import torch
from torchmetrics import Metric

from energy_callbacks.testing import FakeClock
from energy_callbacks_lightning import loop
from energy_callbacks_lightning.metrics import LoggedMetrics
from tests.integrations.lightning.training import Remote, TinyModule, callback, loader, trainer


class Logging(TinyModule):
    """A module that logs at the end of the epoch, and the same value repeatedly."""

    def on_validation_epoch_end(self) -> None:
        """Log a constant metric."""
        self.log("val_acc", 0.5)

    def on_train_epoch_end(self) -> None:
        """Log after the hooks of callbacks, and not in each epoch."""
        if self.current_epoch != 1:
            self.log("late", float(self.current_epoch))


def found(tmp_path: Path, **settings: object) -> dict[str, list[tuple[float | None, float]]]:
    """Return epochs and values of each metric in the report of three epochs."""
    clock = FakeClock()
    ours = callback(clock)
    settings = {"max_epochs": 3, "num_sanity_val_steps": 2} | settings
    trainer(tmp_path, ours, **settings).fit(Logging(clock), loader(), loader(5))
    return {
        metric.name: list(zip(metric.epoch, metric.value, strict=True))
        for metric in ours.report().metrics
    }


def test_each_metric_is_told_once_an_epoch_with_the_epoch_that_it_is_of(tmp_path: Path) -> None:
    """Also a constant one and one that is logged late, but none of the sanity check."""
    told = found(tmp_path)
    assert told["val_acc"] == [(0.0, 0.5), (1.0, 0.5), (2.0, 0.5)]
    assert told["late"] == [(0.0, 0.0), (2.0, 2.0)]
    assert [epoch for epoch, _ in told["train_loss_epoch"]] == [0.0, 1.0, 2.0]


def test_every_validation_within_an_epoch_counts(tmp_path: Path) -> None:
    """With two validations per epoch the training's own metrics are reported once."""
    told = found(tmp_path, val_check_interval=0.5)
    assert [epoch for epoch, _ in told["val_acc"]] == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    assert [epoch for epoch, _ in told["train_loss_epoch"]] == [0.0, 1.0, 2.0]


def test_without_logger_and_progress_bar_nothing_is_fetched_from_a_device() -> None:
    """Reading a tensor of the device 'meta' would be an error."""
    logged = {"on_host": torch.tensor(1.0), "on_device": torch.empty((), device="meta")}
    silent = SimpleNamespace(
        callback_metrics=logged, loggers=[], progress_bar_callback=None, current_epoch=3
    )
    metrics = LoggedMetrics()
    metrics.end_epoch(silent)
    assert metrics.of_epoch(silent) == ({"on_host": 1.0}, 3)
    loud = SimpleNamespace(**{**vars(silent), "loggers": [object()]})
    metrics = LoggedMetrics()
    metrics.end_epoch(loud)
    with pytest.raises(RuntimeError, match="meta"):
        metrics.of_epoch(loud)


class Unready(Metric):
    """A metric whose value cannot be computed."""

    def update(self) -> None:
        """Nothing to add."""

    def compute(self) -> torch.Tensor:
        raise ZeroDivisionError("no samples")


def test_a_metric_that_cannot_be_computed_is_lightning_s_matter(tmp_path: Path) -> None:
    """Its error reaches the user as without us; loggers are finished, and there is a report."""

    class Measured(TinyModule):
        def __init__(self, clock: FakeClock) -> None:
            super().__init__(clock)
            self.unready = Unready()

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.unready.update()
            self.log("unready", self.unready, on_step=False, on_epoch=True)
            return super().training_step(batch, batch_idx)

    found = []
    for ours in ((), (callback(FakeClock()),)):
        remote = Remote()
        with pytest.raises(ZeroDivisionError) as caught:
            trainer(tmp_path, *ours, logger=remote).fit(Measured(FakeClock()), loader())
        found.append((caught.value.__context__, remote.finalized))
    assert found == [(None, ["failed"])] * 2
    assert ours[0].report().run.status == "failed"


@pytest.mark.parametrize(
    ("device", "local_rank", "used"),
    [
        ("cuda:1", 0, (0, 1)),
        ("cuda:1", 1, (1,)),
        ("xpu:0", 0, ("xpu:0", "xpu:1")),
        ("xpu:1", 1, ("xpu:1",)),
        ("cpu", 0, ()),
        ("meta", 0, ()),
    ],
)
def test_devices_of_the_trainer(device: str, local_rank: int, used: tuple[int | str, ...]) -> None:
    """The first rank of a host measures the GPUs of all ranks; all but CUDA's have names."""
    trainer: Any = SimpleNamespace(
        strategy=SimpleNamespace(root_device=torch.device(device)),
        device_ids=[0, 1],
        local_rank=local_rank,
    )

    assert loop.used_gpus(trainer) == used
