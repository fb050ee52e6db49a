"""Steps on trial are the Trainer's own, bit for bit."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from torch.utils.data import SequentialSampler
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, optimization

from energy_callbacks_huggingface.tuning.inner_loop import InnerLoop
from tests.integrations.huggingface.tunable import Factory, Tunable

SMALL = {
    "vocab_size": 16,
    "n_embd": 8,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 8,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
STEPS = 3
SIZE = 4


def language_model() -> GPT2LMHeadModel:
    """Return a transformer that uses ``num_items_in_batch``, without downloaded weights."""
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(**SMALL))


def sentences(rows: int = 64) -> list[dict[str, torch.Tensor]]:
    """Return rows of which some labels are masked."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for row in range(rows):
        tokens = torch.randint(16, (8,), generator=generator)
        labels = tokens.clone()
        labels[: row % 5] = -100
        found.append({"input_ids": tokens, "labels": labels})
    return found


class Plain(torch.nn.Module):
    """A model that computes its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = language_model()

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.inner(input_ids, labels=labels).loss}


class Repeatable(Trainer):
    """A Trainer with rows in order and seeded dropout, which is drawn when a loader is created."""

    is_seeded = False

    def _get_train_sampler(self, *given: Any) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)

    def training_step(self, *given: Any) -> torch.Tensor:
        if not self.is_seeded:
            torch.manual_seed(1)
            self.is_seeded = True
        return super().training_step(*given)


def weights(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return the current weights."""
    return [one.detach().clone() for one in model.parameters()]


@pytest.mark.parametrize(
    ("settings", "accumulation"),
    [
        ({"max_grad_norm": 0.05}, 1),
        ({"max_grad_norm": 0.05}, 3),
        # A loss that knows nothing of the other micro-batches.
        ({"plain": True, "optim": "sgd", "learning_rate": 0.1}, 1),
        ({"plain": True, "optim": "sgd", "learning_rate": 0.1}, 3),
        ({"max_grad_norm": 0.0, "optim": "sgd", "learning_rate": 0.1}, 3),
        ({"bf16": True}, 3),
        ({"gradient_checkpointing": True}, 3),
        ({"lr_scheduler_type": "cosine", "warmup_steps": 1, "weight_decay": 0.1}, 3),
        pytest.param(
            {"lr_scheduler_type": "greedy", "eval_strategy": "epoch"},
            3,
            marks=pytest.mark.skipif(
                not hasattr(optimization, "GreedyLR"), reason="needs GreedyLR"
            ),
        ),
        ({"neftune_noise_alpha": 5.0}, 3),
        ({"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch"}, 3),
        ({"logging_nan_inf_filter": False, "dataloader_num_workers": 1}, 3),
    ],
    ids=str,
)
def test_weights_after_some_steps_are_those_of_train(
    tmp_path: Path, settings: dict[str, Any], accumulation: int
) -> None:
    """Same data, dropout, clipping, loss per token and learning rates."""
    batch = {"per_device_train_batch_size": SIZE, "gradient_accumulation_steps": accumulation}
    settings = dict(settings)
    make = Plain if settings.pop("plain", False) else language_model
    after = []
    for is_ours in (False, True):
        model = make()
        given = {"data": sentences(), "make": Repeatable, "rest": {"eval_dataset": sentences(4)}}
        trainer = Factory(tmp_path, model, max_steps=STEPS, **given, **settings)(**batch)
        before = weights(model)
        if is_ours:
            loop = InnerLoop(trainer, SIZE)
            for _ in range(STEPS):
                loop.step(SIZE, accumulation)
            loop.close()
        else:
            trainer.train()
        assert not any(map(torch.equal, before[:2], weights(model)))
        after.append(weights(model))
    assert all(map(torch.equal, *after))


def test_a_trial_may_have_more_steps_than_the_scheduler(tmp_path: Path) -> None:
    """``OneCycleLR`` raises an error after its last step; a trial continues."""
    model = Tunable()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=2)
    rest = {"optimizers": (optimizer, scheduler)}
    loop = InnerLoop(Factory(tmp_path, model, rest=rest)(per_device_train_batch_size=4), 4)
    for _ in range(4):
        loop.step(4)
    assert model.seen == [4] * 4


def test_the_training_does_not_begin(tmp_path: Path) -> None:
    """The Trainer's own preparation ends before callbacks receive the begin of training."""
    model = Tunable()
    trainer = Factory(tmp_path, model)(per_device_train_batch_size=4)
    loop = InnerLoop(trainer, 4)
    assert model.seen == []
    assert loop.rows_per_rank == 96
    assert trainer.state.global_step == 0
    loop.step(8)
    assert model.seen == [8]
    assert trainer.state.global_step == 0


def test_chosen_rows_make_a_batch_of_their_own(tmp_path: Path) -> None:
    """The rows are collated as by the loader, and repeated for accumulation."""
    model = Tunable()
    trainer = Factory(tmp_path, model)(per_device_train_batch_size=4)
    loop = InnerLoop(trainer, 4)
    loop.step_on([0, 5, 7], 2)
    assert model.seen == [3, 3]


def test_a_loop_that_is_not_the_trainers_is_refused(tmp_path: Path) -> None:
    """This ``train`` does not call on_train_begin."""
    trainer = Factory(tmp_path, Tunable())(per_device_train_batch_size=4)
    trainer.train = lambda: None
    with pytest.raises(RuntimeError, match="did not call on_train_begin"):
        InnerLoop(trainer, 4)
