"""Batches and optimizer steps of a Lightning training are counted as exactly as by a walk."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

pytest.importorskip("lightning")

import torch

from energy_callbacks import EnergyMeter
from energy_callbacks_lightning.step_counter import LightningStepCounter


class Pair(NamedTuple):
    """A batch of a class of its own."""

    x: torch.Tensor
    y: torch.Tensor


class Marks:
    """Stores what is reported."""

    def __init__(self) -> None:
        self.steps: list[tuple[float | None, float | None]] = []
        self.done_batches = 0

    def step(self, samples: float | None = None, tokens: float | None = None) -> None:
        self.steps.append((samples, tokens))

    def done(self) -> None:
        self.done_batches += 1


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
        self.counter.begin(self.trainer)
        self.marks = Marks()
        self.counter._marks = self.marks  # type: ignore[assignment]
        self.counter._step = self.marks.step

    def batch(self, batch: Any, steps: int = 1) -> bool:
        """End a batch with a number of optimizer steps."""
        self.total.completed += steps
        self.trainer.global_step += steps
        return self.counter.end_batch(batch)


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
    assert training.marks.steps == [(4, None), (4, None), (3, None)]


def test_a_batch_of_another_structure_is_searched() -> None:
    """The path to the first tensor of a batch is not used for a batch of another structure."""
    training = Training()
    for batch in ([rows(4)], rows(5), {"x": rows(6)}, [{"y": rows(7)}], [[rows(8)]], [rows(9)]):
        training.batch(batch)
    assert [samples for samples, _ in training.marks.steps] == [4, 5, 6, 7, 8, 9]


def test_sizes_that_begin_to_differ_are_noticed_at_the_next_check() -> None:
    """Samples are unknown from then on, and the user is told."""
    training = Training()
    training.batch([rows(4), rows(4)])
    training.counter.check_sizes()
    with pytest.warns(UserWarning, match=r"first dimensions \[4, 9\]"):
        training.batch([rows(4), rows(9)])
    training.batch([rows(4), rows(4)])
    assert [samples for samples, _ in training.marks.steps] == [4, None, None]


def test_accumulated_batches_count_for_their_step() -> None:
    """Three batches, of which the last ends with a step."""
    training = Training(tokens_fn=lambda batch: 10 * len(batch))
    for size, steps in ((4, 0), (4, 0), (3, 1), (2, 1)):
        training.batch(rows(size), steps)
    assert training.marks.steps == [(11, 110), (2, 20)]
    assert training.marks.done_batches == 2
    assert training.counter.stepped_batches == 2


def test_two_optimizers_share_their_samples() -> None:
    """In manual optimization, samples count once, and batches without a step count for loggers."""
    training = Training(is_automatic=False)
    for steps in (2, 0, 1):
        training.batch(rows(4), steps)
    assert training.marks.steps == [(4, None), (0, None), (8, None)]
    assert training.counter.stepped_batches == 3


def test_without_the_inner_counter_the_trainer_is_asked() -> None:
    """In another version of Lightning, ``trainer.global_step`` is read."""
    training = Training()
    training.trainer.fit_loop.epoch_loop = SimpleNamespace()
    training.counter.begin_epoch(training.trainer, 2)
    assert [training.batch(rows(4)) for _ in range(4)] == [False, True, False, True]
    assert len(training.marks.steps) == 4
