"""Samples, tokens and waits are what the loop really did, or nothing."""

import pickle
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler
from transformers import Trainer, TrainerCallback

from energy_callbacks.testing import FakeClock
from energy_callbacks_huggingface.batches import InputCounter
from tests.integrations.huggingface.training import (
    BATCH_SIZE,
    STEP_S,
    Rows,
    Ticking,
    TinyModel,
    Witness,
    callback,
    trainer,
)
from tests.integrations.reading import phases

COUNTS = {
    "batch_size_fn": lambda inputs: len(inputs["input_ids"]),
    "tokens_fn": lambda inputs: inputs["input_ids"].numel(),
}


def throughput(root: Path, *, model: Any = None, ours: dict | None = None, **settings: Any) -> Any:
    """Train, and return the counts of the report."""
    clock = FakeClock() if model is None else model.clock
    one = callback(clock, **(ours or {}))
    trainer(root, model or TinyModel(clock), one, **settings).train()
    return one.report().throughput


@pytest.mark.parametrize(
    ("settings", "steps", "samples"),
    [
        ({"data": Rows(30)}, 16, 60),
        ({"data": Rows(30), "dataloader_drop_last": True}, 14, 56),
        ({"data": Rows(30), "gradient_accumulation_steps": 4}, 4, 60),
        ({"data": Rows(3)}, 2, 6),
        ({"data": Rows(30), "max_steps": 12}, 12, 30 + 16),
        ({"data": Rows(30), "max_steps": 4, "gradient_accumulation_steps": 3}, 4, 30 + 12),
    ],
)
def test_every_sample_counts_once(tmp_path: Path, settings: dict, steps: int, samples: int) -> None:
    """With short batches, dropped batches, accumulation and a stop within an epoch."""
    found = throughput(tmp_path, **settings)
    assert (found.steps, found.samples) == (steps, samples)


@pytest.mark.parametrize(
    ("rows", "accumulate"), [(5, 2), (5, 3), (29, 3), (30, 2), (31, 2), (31, 3), (48, 2), (48, 3)]
)
def test_accumulated_samples_are_what_the_model_has_seen(
    tmp_path: Path, rows: int, accumulate: int
) -> None:
    """Versions differ in whether they train on batches that do not fill the last step."""
    model = Witness(FakeClock())
    ours = callback(model.clock)
    settings = {"data": Rows(rows), "gradient_accumulation_steps": accumulate}
    one = trainer(tmp_path, model, ours, **settings, num_train_epochs=3)
    one.train()
    found = ours.report().throughput
    assert (found.steps, found.samples) == (one.state.global_step, model.samples)
    assert found.samples > rows


@pytest.mark.parametrize("counts", [{}, COUNTS], ids=["loader", "functions"])
def test_a_stop_between_two_micro_batches(tmp_path: Path, counts: dict) -> None:
    """Micro-batches after the last step are counted although no step follows."""

    class Stopping(TrainerCallback):
        def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = state.global_step == 2

    model = Witness(FakeClock())
    ours = callback(model.clock, **counts)
    settings = {"data": Rows(48), "gradient_accumulation_steps": 4}
    trainer(tmp_path, model, ours, Stopping(), **settings).train()
    found = ours.report().throughput
    assert (found.steps, found.samples) == (2, model.samples)
    assert model.samples == 2 * 4 * BATCH_SIZE + BATCH_SIZE
    assert found.tokens == (model.tokens if counts else None)


def test_an_endless_dataset_has_full_batches(tmp_path: Path) -> None:
    """If the number of rows is unknown, all batches count as full."""

    class Endless(IterableDataset):
        def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
            rows = Rows(50)
            return (rows[at % len(rows)] for at in range(10**6))

    found = throughput(tmp_path, data=Endless(), max_steps=10)
    assert found.samples == 10 * BATCH_SIZE


def test_batches_of_unequal_size_are_not_guessed(tmp_path: Path) -> None:
    """With a batch sampler without a size, samples are unknown without batch_size_fn."""

    class Growing:
        def __iter__(self) -> Iterator[list[int]]:
            return iter([[0], [1, 2], [3, 4, 5], [6, 7, 8, 9]])

        def __len__(self) -> int:
            return 4

    class Own(Trainer):
        def get_train_dataloader(self) -> DataLoader:
            return DataLoader(self.train_dataset, batch_sampler=Growing())

    found = throughput(tmp_path / "a", make=Own, data=Rows(10))
    assert (found.steps, found.samples) == (8, None)
    counted = {"batch_size_fn": lambda inputs: len(inputs["input_ids"])}
    found = throughput(tmp_path / "b", make=Own, data=Rows(10), ours=counted)
    assert (found.steps, found.samples) == (8, 20)


def test_a_loader_of_the_users_own(tmp_path: Path) -> None:
    """The loader's batch size counts, not that of the arguments."""

    class Own(Trainer):
        def get_train_dataloader(self) -> DataLoader:
            sampler = BatchSampler(SequentialSampler(self.train_dataset), 8, drop_last=False)
            return DataLoader(self.train_dataset, batch_sampler=sampler)

    assert throughput(tmp_path, make=Own, data=Rows(30)).samples == 60


def test_resuming_with_another_batch_size(tmp_path: Path) -> None:
    """The checkpoint has the old size; transformers 4.50 trains with it, version 5 does not."""
    clock = FakeClock()
    settings = {"data": Rows(64), "save_strategy": "epoch", "max_steps": 32}
    trainer(tmp_path, TinyModel(clock), callback(clock), **(settings | {"max_steps": 16})).train()
    model, ours = Witness(clock), callback(clock)
    settings["per_device_train_batch_size"] = 8
    trainer(tmp_path, model, ours, **settings).train(resume_from_checkpoint=True)
    assert ours.report().throughput.steps == 32
    assert ours.report().attempts[-1].samples == model.samples >= 16 * BATCH_SIZE


@pytest.mark.parametrize(("accumulate", "at_step"), [(1, 5), (3, 1), (3, 2)])
def test_resuming_in_the_middle_of_an_epoch(tmp_path: Path, accumulate: int, at_step: int) -> None:
    """Skipped batches are not counted, and the short last batch is."""
    clock = FakeClock()
    settings = {
        "data": Rows(30), "gradient_accumulation_steps": accumulate,
        "save_strategy": "steps", "save_steps": at_step,
    }  # fmt: skip
    trainer(tmp_path, TinyModel(clock), callback(clock), max_steps=at_step, **settings).train()
    model, ours = Witness(clock), callback(clock)
    one = trainer(tmp_path, model, ours, **settings)
    one.train(resume_from_checkpoint=True)
    resumed = ours.report().attempts[-1]
    assert (resumed.steps, resumed.samples) == (one.state.global_step - at_step, model.samples)
    assert accumulate > 1 or model.samples == 10 + 30


@pytest.mark.parametrize(("mode", "accumulate"), [(True, 1), ("all", 3), ("non_padding", 3)])
def test_tokens_are_those_that_the_trainer_counts(
    tmp_path: Path, mode: Any, accumulate: int
) -> None:
    """include_num_input_tokens_seen counts all micro-batches, also after a resume."""
    clock = FakeClock()
    settings = {
        "include_num_input_tokens_seen": mode,
        "gradient_accumulation_steps": accumulate,
        "save_strategy": "epoch",
        "data": Rows(48),
    }
    model, first, second = Witness(clock), callback(clock), callback(clock)
    trainer(tmp_path, model, first, num_train_epochs=1, **settings).train()
    in_first = first.report().throughput.tokens
    assert in_first == model.tokens > 0
    trainer(tmp_path, model, second, **settings).train(resume_from_checkpoint=True)
    assert second.report().throughput.tokens == model.tokens > in_first


def test_without_a_count_there_are_no_tokens(tmp_path: Path) -> None:
    """An unknown number is absent, not zero."""
    assert throughput(tmp_path, data=Rows(30)).tokens is None


@pytest.mark.parametrize("accumulate", [1, 3])
def test_functions_of_the_user_see_each_micro_batch_once(tmp_path: Path, accumulate: int) -> None:
    """They get the inputs of model.forward in training only; a step is the sum."""
    seen: list[set[str]] = []

    def count(inputs: Any) -> int:
        seen.append(set(inputs))
        return len(inputs["input_ids"])

    model = Witness(FakeClock())
    found = throughput(
        tmp_path, model=model, data=Rows(31), eval_data=Rows(8), eval_strategy="epoch",
        gradient_accumulation_steps=accumulate, ours=COUNTS | {"batch_size_fn": count},
    )  # fmt: skip
    assert (found.samples, found.tokens) == (model.samples, model.tokens)
    assert seen == [{"input_ids", "labels"}] * model.passes
    assert model.passes > 8


def test_only_the_first_training_pass_of_a_batch_counts(tmp_path: Path) -> None:
    """A loss that generates, evaluates and runs the model twice counts a batch once."""

    class Busy(Trainer):
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            one_row = {name: value[:1] for name, value in inputs.items()}
            with torch.no_grad():
                model(**one_row)
            model.eval()
            model(**one_row)
            model.train()
            loss = super().compute_loss(model, inputs, *args, **kwargs)
            model(**one_row)
            return loss

    counted = {"batch_size_fn": lambda inputs: len(inputs["input_ids"])}
    assert throughput(tmp_path, make=Busy, data=Rows(30), ours=counted).samples == 60


@pytest.mark.parametrize("setting", ["batch_size_fn", "tokens_fn"])
def test_a_count_that_fails_is_left_out(
    tmp_path: Path, setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A function that raises causes one warning; its figures are missing."""

    def broken(inputs: object) -> int:
        raise KeyError("no such thing")

    found = throughput(tmp_path, ours={setting: broken}, data=Rows(32))
    assert found.steps == 16
    assert (found.samples is None) == (setting == "batch_size_fn")
    assert found.tokens is None
    assert sum(setting in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("setting", ["batch_size_fn", "tokens_fn"])
def test_a_signal_while_inputs_are_counted(tmp_path: Path, setting: str) -> None:
    """What the handler raises ends the training; it is not an error of the function."""

    class PreemptedError(Exception):
        pass

    def handler(*_: object) -> None:
        raise PreemptedError

    def count(inputs: object) -> int:
        signal.raise_signal(signal.SIGTERM)
        return 4

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(PreemptedError):
            throughput(tmp_path, ours={setting: count}, data=Rows(32))
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("ours", [{}, {"batch_size_fn": len}], ids=["none", "given"])
def test_the_model_is_as_it_was(tmp_path: Path, ours: dict) -> None:
    """No hook remains on the model, and one is added only if needed."""
    hooks: list[int] = []

    class Looking(TinyModel):
        def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict:
            hooks.append(len(self._forward_pre_hooks))
            return super().forward(input_ids, labels)

    model = Looking(FakeClock())
    throughput(tmp_path, model=model, ours=ours, data=Rows(20))
    assert set(hooks) == {len(ours)}
    assert len(model._forward_pre_hooks) == 0


def test_a_pickled_model_takes_nothing_of_ours_along(tmp_path: Path) -> None:
    """A model that is pickled during training works, and does not count."""
    copies: list[bytes] = []

    class Pickled(TinyModel):
        def __reduce__(self) -> Any:
            return torch.nn.Linear, (3, 1), {"_forward_pre_hooks": self._forward_pre_hooks}

    class Saving(Trainer):
        def training_step(self, model: Any, *args: Any, **kwargs: Any) -> Any:
            copies.append(pickle.dumps(self.model))
            return super().training_step(model, *args, **kwargs)

    seen: list[Any] = []
    counted = {"batch_size_fn": lambda inputs: seen.append(inputs) or 4}
    model = Pickled(FakeClock())
    throughput(tmp_path, model=model, make=Saving, data=Rows(8), ours=counted)
    [hook] = pickle.loads(copies[0])._forward_pre_hooks.values()
    before = len(seen)
    hook(model, (), {"input_ids": torch.zeros(4, 3)})
    assert len(seen) == before


def test_a_compiled_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile: functions are called once in every step, and are not compiled."""

    class Plain(TinyModel):
        def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict:
            return {"loss": self.layer(input_ids).square().mean()}

    monkeypatch.setattr("torch._dynamo.config.error_on_recompile", True)
    # With Accelerate before 1.2 the arguments set it, and every later model would be compiled.
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "no")
    traced: list[bool] = []

    def count(inputs: dict[str, torch.Tensor]) -> int:
        traced.append(torch.compiler.is_compiling())
        return len(inputs["input_ids"])

    counted = {"batch_size_fn": count}
    found = throughput(
        tmp_path, model=Plain(FakeClock()), ours=counted, data=Rows(32),
        torch_compile=True, torch_compile_backend="eager",
    )  # fmt: skip
    assert (found.steps, found.samples) == (16, 64)
    assert traced == [False] * 16


class SlowRows(Rows):
    """Rows that take a quarter of a batch's time each."""

    def __init__(self, clock: FakeClock, rows: int) -> None:
        super().__init__(rows)
        self.clock = clock

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        self.clock.advance(STEP_S / BATCH_SIZE)
        return super().__getitem__(index)


@pytest.mark.parametrize("event", ["on_evaluate", "on_step_end", "on_log", "on_epoch_end"])
def test_slow_callbacks_are_no_waiting(tmp_path: Path, event: str) -> None:
    """Each batch waits a tenth of a second; time in the user's callbacks is not waiting."""
    clock = FakeClock()
    ours = callback(clock)
    trainer(
        tmp_path, TinyModel(clock), ours, Ticking(clock, event, 1.0),
        data=SlowRows(clock, 32), eval_data=Rows(20), eval_strategy="steps", eval_steps=5,
    ).train()  # fmt: skip
    assert ours.report().throughput.data_wait_s == pytest.approx(16 * STEP_S, abs=1e-6)
    assert phases(ours.report())["validation"] >= 3 * 5 * STEP_S - 1e-6


def test_a_count_that_is_a_tensor_is_not_read() -> None:
    """Reading it would wait for the device; a tensor without values shows that nothing reads it."""
    model, counter = torch.nn.Linear(2, 2), InputCounter(None, lambda x: x.sum().to("meta"))
    counter.attach(model, 1)
    for is_first in (True, False):
        counter.expect(is_first=is_first)
        model(torch.ones(4, 2))
    _, tokens = counter.take(None, None, 2)
    assert tokens.is_meta
