"""Lightning calls only those hooks of the callback at every step that the callback uses."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

import lightning.pytorch as pl
import torch
from lightning.pytorch.demos.boring_classes import BoringModel

from energy_callbacks.lightning import GpuEnergyCallback

UNUSED = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
)


class Beside(pl.Callback):
    """Calls a function after the hook of our callback at every batch."""

    def __init__(self, act: Any) -> None:
        self._act = act

    def on_train_batch_end(self, *_: Any) -> None:
        """Call the function."""
        self._act()


def fit(folder: Path, ours: GpuEnergyCallback, act: Any = lambda: None) -> None:
    """Train three batches."""
    trainer = pl.Trainer(
        limit_train_batches=3,
        limit_val_batches=0,
        max_epochs=1,
        accelerator="cpu",
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ours, Beside(act)],
    )
    trainer.fit(BoringModel())


def test_hooks_that_are_not_used_are_not_called(tmp_path: Path) -> None:
    """During a training they are not callable; afterwards the callback is as before."""
    ours, seen = GpuEnergyCallback(report_dir=tmp_path), []
    fit(tmp_path, ours, lambda: seen.append([getattr(ours, name) for name in UNUSED]))
    assert seen == [[None] * len(UNUSED)] * 3
    assert not {*UNUSED, "on_train_batch_end"} & set(vars(ours))
    assert all(callable(getattr(ours, name)) for name in UNUSED)
    assert ours.report.throughput.steps == 3


def test_hooks_of_a_subclass_are_called(tmp_path: Path) -> None:
    """Also if they call the hooks of this package."""
    called: list[str] = []

    class Own(GpuEnergyCallback):
        def on_train_batch_start(self, *args: Any) -> None:
            super().on_train_batch_start(*args)
            called.append("start")

        def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
            super().on_train_batch_end(*args, **kwargs)
            called.append("end")

    ours = Own(report_dir=tmp_path)
    fit(tmp_path, ours)
    assert called == ["start", "end"] * 3
    assert ours.report.throughput.steps == 3


def test_a_hook_that_was_replaced_stays(tmp_path: Path) -> None:
    """Somebody may replace hooks of the object, for example to test or to time them."""
    called: list[str] = []
    ours = GpuEnergyCallback(report_dir=tmp_path)
    for name in ("on_before_backward", "on_train_batch_end"):
        setattr(ours, name, lambda *_, name=name: called.append(name))
    fit(tmp_path, ours)
    assert called == ["on_before_backward", "on_train_batch_end"] * 3
    assert "on_train_batch_end" in vars(ours)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_that_was_made_during_a_training_measures_the_next_one(
    tmp_path: Path, copied: Any
) -> None:
    """A copy counts its own steps, and does not change the counts of the original."""
    ours, copies = GpuEnergyCallback(report_dir=tmp_path / "first"), []
    fit(tmp_path, ours, lambda: copies.append(copied(ours)))
    twin = copies[0]
    fit(tmp_path, twin)
    assert twin._steps.stepped_batches == 3
    assert ours._steps.stepped_batches == 3
    assert torch.is_grad_enabled()
