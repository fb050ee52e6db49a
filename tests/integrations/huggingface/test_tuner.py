"""The batch size of a Trainer: the result takes effect, and nothing else has changed."""

import copy
import gc
import random
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch
from accelerate.state import GradientState
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SequentialSampler
from transformers import Trainer

from energy_callbacks.core.errors import NothingFits
from energy_callbacks.huggingface import GpuEnergyCallback, batch_arguments, tune_batch_size
from energy_callbacks.tuning import BatchSizeResult
from tests.integrations.huggingface.test_inner_loop import language_model, sentences
from tests.integrations.huggingface.training import LENGTH, Rows
from tests.integrations.huggingface.tunable import Events, Factory, Seen, Tunable, tuned
from tests.integrations.left import children_left


def test_what_is_found_is_what_the_model_is_then_trained_with(tmp_path: Path) -> None:
    """The largest size that fits, also without a limit: 32 of 96 rows."""
    factory = Factory(tmp_path, Tunable(most=32))
    result = tuned(factory, tmp_path, max_trials=12)
    assert result.size == 32
    factory.model.seen.clear()
    factory(**batch_arguments(result)).train()
    assert factory.model.seen == [32, 32, 32]


def test_the_effective_batch_is_kept(tmp_path: Path) -> None:
    """24 do not fit: 12 are accumulated twice, with the same number of optimizer steps."""
    factory = Factory(tmp_path, Tunable(most=20))
    result = tuned(factory, tmp_path, global_batch_size=24)
    assert (result.size, result.accumulation) == (12, 2)
    assert {trial.size * trial.accumulation for trial in result.trials} == {24}
    factory.model.seen.clear()
    trainer = factory(**batch_arguments(result))
    trainer.train()
    assert factory.model.seen == [12] * 8
    assert trainer.state.global_step == trainer.state.max_steps == 4


def test_every_trial_ran_at_its_own_size(tmp_path: Path) -> None:
    """Neither the short last batch of an epoch nor another size is counted."""
    factory = Factory(tmp_path, Tunable(most=1000), data=Rows(10))
    started: list[int] = []
    result = tuned(factory, tmp_path, on_trial=lambda trial: started.append(trial.size), min_size=3)
    assert set(factory.model.seen) == set(started)
    assert result.size == max(started) == 10


def test_samples_are_those_that_the_model_has_seen(tmp_path: Path) -> None:
    """The steps of a trial times its samples, between warm-up and end."""
    model = Tunable()
    result = tuned(Factory(tmp_path, model), tmp_path, min_size=5, max_size=5)
    (trial,) = result.trials
    assert trial.samples == 5 * trial.steps
    assert model.seen == [5] * len(model.seen)
    assert len(model.seen) > trial.steps


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> Any:
    """Return all state that determines a training."""
    return copy.deepcopy(
        {
            "weights": model.state_dict(),
            "gradients": [one.grad for one in model.parameters()],
            "modes": [one.training for one in model.modules()],
            "optimizer": optimizer and optimizer.state_dict(),
            "random": [random.getstate(), torch.get_rng_state().tolist()],
            "numpy": np.random.get_state(legacy=False)["state"]["key"].tolist(),
        }
    )


def same(one: Any, other: Any) -> bool:
    """Whether two states are bitwise equal."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize(
    ("steps_before", "most", "lasting"),
    [(0, 1000, 0), (2, 1000, 0), (0, 8, 3), (2, 8, 0), (0, 0, 0), (2, 0, 3)],
)
def test_the_training_is_as_before(
    tmp_path: Path, steps_before: int, most: int, lasting: int
) -> None:
    """Weights, a user's optimizer and generators are restored, also if each trial fails.

    So they are where the memory ends in the middle of a trial, after steps of the optimizer.
    """
    model = Tunable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps_before):
        model(torch.ones(4, LENGTH))["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    model.most, model.lasting = most, lasting
    factory = Factory(tmp_path, model, rest={"optimizers": (optimizer, None)}, warmup_steps=5)
    before = state_of(model, optimizer)
    gc.collect()  # Accelerate knows a loader of a training that broke for as long as it lives
    loaders = GradientState().in_dataloader  # older versions leave theirs behind after training
    try:
        tuned(factory, tmp_path, global_batch_size=16, max_trials=4)
    except NothingFits:
        assert most == 0
    assert same(before, state_of(model, optimizer))
    (trainer,) = factory.made
    assert trainer.state.global_step == 0
    assert trainer.args.per_device_train_batch_size == 1
    assert trainer.args.gradient_accumulation_steps == 16
    assert trainer.optimizer is optimizer
    assert trainer.lr_scheduler is None
    assert not trainer.is_in_train
    assert GradientState().sync_gradients
    assert GradientState().in_dataloader == loaders


def test_a_training_after_the_search_is_the_one_without_it(tmp_path: Path) -> None:
    """Losses and weights are equal, with everything that prepares the model for training."""
    settings: dict[str, Any] = {
        "bf16": True,
        "gradient_checkpointing": True,
        "neftune_noise_alpha": 5.0,
        "warmup_steps": 2,
    }
    after = []
    for is_tuned in (False, True):
        factory = Factory(tmp_path, language_model(), data=sentences(), **settings)
        if is_tuned:
            attributes = {name: dict(vars(one)) for name, one in factory.model.named_modules()}
            hooks = [len(one._forward_hooks) for one in factory.model.modules()]
            tuned(factory, tmp_path, max_size=16)
            assert hooks == [len(one._forward_hooks) for one in factory.model.modules()]
            assert attributes == {n: dict(vars(one)) for n, one in factory.model.named_modules()}
        trainer = factory(per_device_train_batch_size=8, gradient_accumulation_steps=2)
        trainer.train()
        losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
        assert len(losses) == trainer.state.max_steps == 4
        after.append([losses, factory.model.state_dict()])
    assert same(*after)


def test_an_error_of_the_model_passes_through(tmp_path: Path) -> None:
    """The error propagates, and the model is restored."""
    model = Tunable(most=4, error=ZeroDivisionError("of the user's"))
    before = state_of(model, None)
    with pytest.raises(ZeroDivisionError, match="of the user's"):
        tuned(Factory(tmp_path, model), tmp_path)
    assert same(before, state_of(model, None))


def test_an_error_that_only_accelerate_takes_for_want_of_memory_passes_through(
    tmp_path: Path,
) -> None:
    """Accelerate's search would repeat with smaller batches."""
    model = Tunable(most=0, error=RuntimeError("The user's table is out of memory."))
    with pytest.raises(RuntimeError, match="user's table"):
        tuned(Factory(tmp_path, model), tmp_path)


def test_nothing_fits(tmp_path: Path) -> None:
    """The message names the smallest allowed size, the error and the remedy."""
    with pytest.raises(NothingFits, match=r"batch size 8 does not fit: .*2\.00 GiB.*min_size"):
        tuned(Factory(tmp_path, Tunable(most=7)), tmp_path, min_size=8)


def test_no_callback_is_called_and_nothing_is_evaluated_or_saved(tmp_path: Path) -> None:
    """Callbacks receive only the creation of a Trainer; ours leaves no report."""
    events = Events()
    ours = GpuEnergyCallback(report_dir=tmp_path / "ours")

    class NoEvaluation(Trainer):
        def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
            raise AssertionError

        def log(self, *args: Any, **kwargs: Any) -> None:
            raise AssertionError

    factory = Factory(
        tmp_path / "out",
        Tunable(),
        callbacks=[events, ours],
        make=NoEvaluation,
        rest={"eval_dataset": Rows(4)},
        eval_strategy="steps",
        eval_on_start=True,
        save_strategy="steps",
        save_steps=1,
        report_to=["tensorboard"],
    )
    tuned(factory, tmp_path)
    assert set(events.names) <= {"on_init_end"}
    assert list((tmp_path / "out").iterdir()) == []
    assert not (tmp_path / "ours").exists()


def test_our_callback_then_sees_the_training_alone(tmp_path: Path) -> None:
    """It counts all samples of the training, and none of the search."""
    ours = GpuEnergyCallback(report_dir=tmp_path / "ours")
    factory = Factory(tmp_path, Tunable(), callbacks=[ours])
    result = tuned(factory, tmp_path)
    factory(**batch_arguments(result)).train()
    assert ours.report().throughput.samples == 96


def test_the_trainer_and_what_it_held_are_let_go(tmp_path: Path) -> None:
    """Loader and optimizer of the search are freed; its Trainer may exist."""
    seen: list[weakref.ref[Any]] = []

    class Watched(Trainer):
        def create_optimizer(self, *args: Any) -> Any:
            made = super().create_optimizer(*args)
            made.itself = made  # reference counts alone do not free all optimizers
            seen.append(weakref.ref(made))
            return made

        def get_train_dataloader(self) -> Any:
            loader = super().get_train_dataloader()
            seen.append(weakref.ref(loader))
            return loader

    def no_loader_of_an_earlier_trial(trial: Any) -> None:
        gc.collect()
        alive.append(sum(one() is not None for one in seen[2:]))

    alive: list[int] = []
    factory = Factory(tmp_path, Tunable(), make=Watched)
    result = tuned(factory, tmp_path, on_trial=no_loader_of_an_earlier_trial)
    assert len(seen) == 2 + sum(trial.status == "ok" for trial in result.trials)
    assert set(alive) == {0}
    assert [one() for one in seen] == [None] * len(seen)


@pytest.mark.parametrize("is_lasting", [False, True])
def test_workers_end_with_the_trials(tmp_path: Path, is_lasting: bool) -> None:
    """The workers of a trial end before the next trial."""
    workers: list[int] = []

    def count(trial: Any) -> None:
        gc.collect()
        workers.append(children_left())

    factory = Factory(
        tmp_path,
        Tunable(),
        dataloader_num_workers=1,
        dataloader_persistent_workers=is_lasting,
    )
    tuned(factory, tmp_path, min_size=32, max_trials=2, on_trial=count)
    assert set(workers) == {0}


class Ragged(torch.utils.data.Dataset):
    """Rows of 1 to 7 tokens; 13 of 96 rows have seven, at distant positions."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        if index >= len(self):  # where an iteration ends that knows no length
            raise IndexError(index)
        return {"input_ids": [1] * (1 + index % 7)}


def padded(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Collate with dynamic padding."""
    most = max(len(row["input_ids"]) for row in rows)
    ids = [row["input_ids"] + [0] * (most - len(row["input_ids"])) for row in rows]
    return {"input_ids": torch.tensor(ids)}


class Reader(torch.nn.Module):
    """A model for rows of any length that records the shapes and contents of its inputs."""

    main_input_name = "input_ids"

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(32, 4)
        self.seen = Seen()

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen.append(input_ids)
        return {"loss": self.embedding(input_ids).square().mean()}


def first_batches(model: Reader, result: BatchSizeResult) -> dict[int, torch.Tensor]:
    """Return the first batch of each size."""
    firsts: dict[int, torch.Tensor] = {}
    for batch in model.seen:
        firsts.setdefault(len(batch), batch)
    assert set(firsts) == {trial.size for trial in result.trials}
    return firsts


def test_each_trial_begins_with_the_longest_rows(tmp_path: Path) -> None:
    """By default: thirteen rows have seven tokens, and fill a small batch."""
    model = Reader()
    factory = Factory(tmp_path, model, data=Ragged(), rest={"data_collator": padded})
    result = tuned(factory, tmp_path, max_size=32)
    for size, batch in first_batches(model, result).items():
        assert batch.shape == (size, 7)
        assert int(batch.bool().all(1).sum()) == min(size, 13)


def test_the_longest_rows_are_accumulated_too(tmp_path: Path) -> None:
    """With gradients allocated the second pass needs more memory."""
    model = Reader()
    factory = Factory(tmp_path, model, data=Ragged(), rest={"data_collator": padded})
    tuned(factory, tmp_path, global_batch_size=32, min_size=8, max_size=8)
    assert all(bool(batch.bool().all()) for batch in model.seen[:2])
    model.seen.clear()
    tuned(factory, tmp_path, global_batch_size=8, min_size=8, max_size=8)
    assert bool(model.seen[0].bool().all())
    assert not bool(model.seen[1].bool().all())


def test_a_length_of_the_users_own(tmp_path: Path) -> None:
    """If memory does not grow with tokens: here the shortest rows count as longest."""
    model = Reader()
    factory = Factory(tmp_path, model, data=Ragged(), rest={"data_collator": padded})
    result = tuned(
        factory, tmp_path, length_fn=lambda row: -len(row["input_ids"]), max_size=8, min_size=2
    )
    assert {batch.shape[1] for batch in first_batches(model, result).values()} == {1}


@pytest.mark.parametrize("kind", ["stored", "with lengths", "transformed", "shuffled"])
def test_tables_of_hugging_face(tmp_path: Path, kind: str) -> None:
    """Lengths from stored ``input_ids``, from a column, or from transformed rows."""
    datasets = pytest.importorskip("datasets")
    rows = [Ragged()[index]["input_ids"] for index in range(96)]
    table = datasets.Dataset.from_dict({"input_ids": rows, "text": ["word"] * 96})
    if kind == "with lengths":  # which say that rows of four are the longest
        table = table.add_column("length", [9 if len(row) == 4 else 1 for row in rows])
    if kind == "transformed":  # rows of one token become the longest
        table.set_transform(
            lambda batch: {"input_ids": [[1] * (8 - len(r)) for r in batch["input_ids"]]}
        )
    if kind == "shuffled":
        table = table.shuffle(seed=1)
    model = Reader()
    rest = {"data_collator": padded}
    factory = Factory(tmp_path, model, data=table, rest=rest, remove_unused_columns=True)
    result = tuned(factory, tmp_path, min_size=2, max_size=8)
    longest = 4 if kind == "with lengths" else 7
    for batch in first_batches(model, result).values():
        assert batch.shape[1] == longest
        assert bool(batch.bool().all())


def test_rows_grouped_by_length_are_grouped_by_the_size_on_trial(tmp_path: Path) -> None:
    """The sampler reads the arguments, not the batch size of the loader."""
    import inspect

    from transformers import TrainingArguments
    from transformers.trainer_pt_utils import LengthGroupedSampler

    groups: list[int] = []

    class Watched(Trainer):
        def _get_train_sampler(self, *given: Any) -> Any:
            sampler = super()._get_train_sampler(*given)
            assert isinstance(sampler, LengthGroupedSampler)
            groups.append(sampler.batch_size)
            return sampler

    is_new = "train_sampling_strategy" in inspect.signature(TrainingArguments).parameters
    grouped: dict[str, Any] = (
        {"train_sampling_strategy": "group_by_length"} if is_new else {"group_by_length": True}
    )
    factory = Factory(
        tmp_path, Reader(), data=Ragged(), make=Watched, rest={"data_collator": padded}, **grouped
    )
    tuned(factory, tmp_path, global_batch_size=24)
    assert set(groups[1:]) == {24}
    groups.clear()
    result = tuned(factory, tmp_path)
    assert groups[1:] == [trial.size for trial in result.trials]


def test_a_sampler_of_the_users_own_says_how_many_rows_there_are(tmp_path: Path) -> None:
    """Twelve of 96 rows: no larger batch is complete."""

    class Few(Trainer):
        def _get_train_sampler(self, *given: Any) -> Any:
            return RandomSampler(self.train_dataset, num_samples=12)

    result = tuned(Factory(tmp_path, Tunable(), make=Few), tmp_path)
    assert max(trial.size for trial in result.trials) == 12


def test_a_model_that_is_made_for_each_training(tmp_path: Path) -> None:
    """``model_init`` is called by the constructor; a second model would need memory."""
    made: list[Any] = []

    class Making(Trainer):
        def __init__(self, model: Callable[[], Any], **given: Any) -> None:
            super().__init__(model_init=model, **given)

    def make() -> Tunable:
        made.append(None)
        return Tunable(most=8)

    factory = Factory(tmp_path, make, make=Making)
    result = tuned(factory, tmp_path)
    assert result.size == 8
    assert len(made) == 1
    assert factory.made[0].model_init is make


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        raise AssertionError("nothing may be read")


class OwnBatches(Trainer):
    """A Trainer whose batches always have three rows."""

    def get_train_dataloader(self) -> Any:
        sampler = BatchSampler(SequentialSampler(self.train_dataset), 3, drop_last=False)
        loader = torch.utils.data.DataLoader(self.train_dataset, batch_sampler=sampler)
        return self.accelerator.prepare(loader)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"data": Stream(), "max_steps": 5}, "train_dataset must have len.*got Stream"),
        ({"make": OwnBatches}, "batches of 1 rows .* got batch_size=3"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size=True"),
    ],
    ids=["stream", "batches", "auto"],
)
def test_what_has_no_size_to_choose_is_refused(
    tmp_path: Path, settings: dict[str, Any], told: str
) -> None:
    """The error is raised before any step."""
    model = Tunable()
    with pytest.raises(ValueError, match=told):
        tuned(Factory(tmp_path, model, **settings), tmp_path)
    assert model.seen == []


@pytest.mark.parametrize(
    ("attribute", "value", "told"),
    [
        ("args._n_gpu", 2, "2 GPUs"),
        ("accelerator.state.distributed_type", "FSDP", "got FSDP"),
        ("is_distributed_loading_by_transformers", True, "a sharded model"),
    ],
)
def test_ranks_that_cannot_step_alone_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attribute: str, value: Any, told: str
) -> None:
    """A rank without memory would block the others."""
    from accelerate.utils import DistributedType

    def make(**batch: int) -> Trainer:
        trainer: Any = Factory(tmp_path, Tunable())(**batch)
        *path, name = attribute.split(".")
        owner = trainer
        for step in path:
            owner = getattr(owner, step)
        is_kind = name == "distributed_type"
        monkeypatch.setattr(
            owner, name, DistributedType(value) if is_kind else value, raising=False
        )
        return trainer

    with pytest.raises(ValueError, match=told):
        tuned(make, tmp_path)


def test_a_factory_that_does_not_hand_the_size_on_is_refused(tmp_path: Path) -> None:
    """Otherwise the result would have no effect."""
    factory = Factory(tmp_path, Tunable())
    with pytest.raises(ValueError, match=r"per_device_train_batch_size=1, but .* have 4"):
        tuned(lambda **batch: factory(per_device_train_batch_size=4), tmp_path)
    with pytest.raises(ValueError, match=r"gradient_accumulation_steps=1, but .* have 2"):
        tuned(lambda **batch: factory(**batch | {"gradient_accumulation_steps": 2}), tmp_path)
    with pytest.raises(ValueError, match=r"gradient_accumulation_steps=8, but .* have 1"):
        tuned(
            lambda per_device_train_batch_size, **batch: factory(
                per_device_train_batch_size=per_device_train_batch_size
            ),
            tmp_path,
            global_batch_size=8,
        )


def test_a_trainer_is_no_factory(tmp_path: Path) -> None:
    """Nor is a function that returns nothing."""
    factory = Factory(tmp_path, Tunable())
    trainer: Any = factory(per_device_train_batch_size=4)
    with pytest.raises(TypeError, match=r"a function that creates a Trainer.* got Trainer"):
        tune_batch_size(trainer)
    with pytest.raises(TypeError, match="must return a Trainer, got NoneType"):
        tune_batch_size(lambda **batch: None)


def test_options_are_checked_before_a_trainer_is_made(tmp_path: Path) -> None:
    """Creating a Trainer may take minutes."""
    factory = Factory(tmp_path, Tunable())
    options: dict[str, Any] = {"max_sise": 3}
    with pytest.raises(TypeError, match="no option 'max_sise'"):
        tune_batch_size(factory, **options)
    with pytest.raises(TypeError, match="length_fn must be a function of a row, got 3; leave"):
        tune_batch_size(factory, length_fn=3)  # type: ignore[arg-type]
    assert factory.made == []
