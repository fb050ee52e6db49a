"""Hooks of a step: batches and steps are counted exactly, with few calls of functions."""

import copy
import pickle
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

pytest.importorskip("lightning")

import lightning.pytorch as pl
import torch
from lightning.pytorch.demos.boring_classes import BoringModel

from energy_callbacks import EnergyMeter
from energy_callbacks.accounting.metrics.row_schedule import RowSchedule
from energy_callbacks.accounting.step_marks import STEP, Event, StepMarks
from energy_callbacks.lightning import GpuEnergyCallback
from energy_callbacks.testing import FakeClock
from energy_callbacks_lightning.step_counter import LightningStepCounter


class Pair(NamedTuple):
    """A batch of a class of its own."""

    x: torch.Tensor
    y: torch.Tensor


class Training:
    """A trainer as far as the counter reads it, and a counter."""

    def __init__(self, *, is_automatic: bool = True, **functions: Any) -> None:
        total = SimpleNamespace(completed=0)
        self.total = total
        step = SimpleNamespace(step=SimpleNamespace(total=total))
        epoch = SimpleNamespace(
            automatic_optimization=SimpleNamespace(optim_progress=SimpleNamespace(optimizer=step)),
            manual_optimization=SimpleNamespace(optim_step_progress=SimpleNamespace(total=total)),
        )
        self.trainer = SimpleNamespace(
            fit_loop=SimpleNamespace(epoch_loop=epoch),
            lightning_module=SimpleNamespace(automatic_optimization=is_automatic),
            global_step=0,
        )
        settings = {"batch_size_fn": None, "tokens_fn": None} | functions
        self.counter = LightningStepCounter(EnergyMeter(), **settings)
        self.events: list[Event] = []
        meter = self.counter._meter
        meter._step_marks = lambda: StepMarks(self.events.append, time.monotonic)  # type: ignore[method-assign]
        self.acted: list[int] = []
        self.counter.begin(self.trainer, self)

    def act(self, trainer: Any) -> None:
        """Store the number of the batch at which the callback acts."""
        self.acted.append(self.counter.stepped_batches)

    def _abandon(self, message: str) -> None:
        """Fail: the counter has raised an exception."""
        pytest.fail(message)

    def batch(self, batch: Any, steps: int = 1) -> None:
        """End a batch with a number of optimizer steps."""
        self.total.completed += steps
        self.trainer.global_step += steps
        self.counter.on_train_batch_end(self.trainer, None, None, batch, 0)

    @property
    def steps(self) -> list[tuple[float | None, float | None]]:
        """Samples and tokens of the steps so far."""
        return [(samples, tokens) for kind, _, samples, tokens, _ in self.events if kind == STEP]


def rows(count: int) -> torch.Tensor:
    """Return a tensor with ``count`` samples."""
    return torch.zeros(count, 2)


@pytest.mark.parametrize(
    "batch_of",
    [
        rows,
        lambda n: [rows(n), rows(n)],
        lambda n: (["a text"] * n, {"x": rows(n)}),
        lambda n: {"scalar": torch.tensor(1.0), "x": [rows(n)]},
        lambda n: Pair(rows(n), rows(n)),
    ],
)
def test_each_batch_has_its_own_size(batch_of: Any) -> None:
    """A smaller last batch is counted as it is, for batches of any structure."""
    training = Training()
    for size in (4, 4, 3):
        training.batch(batch_of(size))
    assert training.steps == [(4, None), (4, None), (3, None)]


def test_a_batch_of_another_structure_is_searched() -> None:
    """The path to the first tensor of a batch is not used for a batch of another structure."""
    training = Training()
    for batch in ([rows(4)], rows(5), {"x": rows(6)}, [{"y": rows(7)}], [[rows(8)]], [rows(9)]):
        training.batch(batch)
    assert [samples for samples, _ in training.steps] == [4, 5, 6, 7, 8, 9]


def test_sizes_that_begin_to_differ_are_noticed_at_the_next_check() -> None:
    """Samples are unknown from then on, and the user is told."""
    training = Training()
    training.batch([rows(4), rows(4)])
    training.counter.check_sizes()
    with pytest.warns(UserWarning, match=r"first dimensions \[4, 9\]"):
        training.batch([rows(4), rows(9)])
    training.batch([rows(4), rows(4)])
    assert [samples for samples, _ in training.steps] == [4, None, None]


def test_a_batch_without_tensors_has_no_known_size() -> None:
    """The message says why, and what to do."""
    training = Training()
    with pytest.warns(UserWarning, match=r"no tensor with a dimension.*give batch_size_fn="):
        training.batch({"text": ["one", "two"], "scalar": torch.tensor(1.0)})
    assert training.steps == [(None, None)]


def test_accumulated_batches_count_for_their_step() -> None:
    """Three batches, of which the last ends with a step."""
    training = Training(tokens_fn=lambda batch: 10 * len(batch))
    for size, steps in ((4, 0), (4, 0), (3, 1), (2, 1)):
        training.batch(rows(size), steps)
    assert training.steps == [(11, 110), (2, 20)]
    assert {kind for kind, *_ in training.events} == {STEP}  # waits are not its job
    assert training.counter.stepped_batches == 2


def test_a_count_that_is_a_tensor_is_not_read() -> None:
    """Reading it would wait for the device; a tensor without values shows that nothing reads it."""
    training = Training(tokens_fn=lambda batch: batch.sum().to("meta"))
    for steps in (0, 1):
        training.batch(rows(4), steps)
    ((_, tokens),) = training.steps
    assert tokens.is_meta


def test_two_optimizers_share_their_samples() -> None:
    """In manual optimization, samples count once, and batches without a step count for loggers."""
    training = Training(is_automatic=False)
    for steps in (2, 0, 1):
        training.batch(rows(4), steps)
    assert training.steps == [(4, None), (0, None), (8, None)]
    assert training.counter.stepped_batches == 3


def test_without_the_inner_counter_the_trainer_is_asked() -> None:
    """In another version of Lightning, ``trainer.global_step`` is read."""
    training = Training()
    training.trainer.fit_loop.epoch_loop = SimpleNamespace()
    training.counter.begin_epoch(training.trainer, 2)
    for _ in range(4):
        training.batch(rows(4))
    assert training.acted == [2, 4]
    assert len(training.steps) == 4


def test_a_plain_batch_calls_no_function_of_this_package() -> None:
    """From the second batch on, if all batches are alike; calls are counted by the interpreter."""
    training, called = Training(), []
    training.counter.begin_epoch(training.trainer, 100)

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_globals["__name__"].startswith("energy_callbacks"):
            called.append(frame.f_code.co_name)

    training.batch([rows(4), rows(4)])
    sys.setprofile(note)
    training.batch([rows(4), rows(4)])
    sys.setprofile(None)
    assert called == ["on_train_batch_end"]


def test_plain_batches_act_only_when_a_row_may_be_due() -> None:
    """At a step of the loss within a second after a row, the callback has nothing to do."""
    training, clock = Training(), FakeClock(start_s=time.monotonic())
    schedule = RowSchedule(clock.monotonic_s)
    training.counter.begin_epoch(training.trainer, 2, schedule)
    training.batch(rows(3))
    training.batch(rows(3))
    schedule.logged(took_s=3600.0)
    for _ in range(4):
        training.batch(rows(3))
    schedule.next_s = time.monotonic()
    training.batch(rows(3))
    training.batch(rows(3))
    assert training.acted == [2, 8]


@pytest.mark.parametrize("batch", [rows(3), [rows(3), rows(3)], {"x": rows(3)}])
def test_plain_batches_act_where_others_do(batch: Any) -> None:
    """Steps that are due are found in plain batches as in others."""
    training = Training()
    training.counter.begin_epoch(training.trainer, 3)
    for steps in (1, 1, 1, 0, 1, 1, 2, 1, 1):
        training.batch(batch, steps)
    assert training.acted == [3, 6]
    assert training.counter.stepped_batches == 8
    assert [samples for samples, _ in training.steps] == [3, 3, 3, 6, 3, 3, 0, 3, 3]


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
    assert ours.report().throughput.steps == 3


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
    assert ours.report().throughput.steps == 3


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
