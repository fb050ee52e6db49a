"""Trainers that derive from Trainer: TRL's, and those of transformers itself."""

from pathlib import Path

import pytest

pytest.importorskip("transformers")

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from energy_callbacks.testing import FakeClock
from tests.integrations.huggingface.training import (
    STEP_S,
    Rows,
    TinyModel,
    boards,
    callback,
    trainer,
)
from tests.integrations.reading import phases, scalars

TAG = "efficiency/gpu_j_per_sample"


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of ten words, created offline."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<pad>", "</s>", "the", "joule", "is", "a", "unit", "of", "work", "."]
    raw = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, "<pad>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="</s>", unk_token="<pad>"
    )


def test_sft_of_trl(tmp_path: Path) -> None:
    """TRL's SFTTrainer: rows, samples, tokens, evaluation, exact tags."""
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=10, n_positions=16, n_embd=8, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1
    )
    clock = FakeClock()
    model = GPT2LMHeadModel(config)
    # TRL replaces the model's forward: only a hook is sure to be called.
    model.register_forward_pre_hook(lambda *_: clock.advance(STEP_S))
    ours = callback(clock)
    texts = datasets.Dataset.from_dict({"text": ["the joule is a unit of work ."] * 30})
    one = trl.SFTTrainer(
        model=model,
        processing_class=tokenizer(),
        train_dataset=texts,
        eval_dataset=texts.select(range(8)),
        callbacks=[ours],
        args=trl.SFTConfig(
            output_dir=str(tmp_path), use_cpu=True, bf16=False, num_train_epochs=2, logging_steps=2,
            per_device_train_batch_size=4, per_device_eval_batch_size=4, eval_strategy="epoch",
            save_strategy="no", report_to=["tensorboard"], disable_tqdm=True, max_length=16,
            include_num_input_tokens_seen=True, dataloader_pin_memory=False,
        ),
    )  # fmt: skip
    one.train()
    report = ours.report()
    assert (report.throughput.steps, report.throughput.samples) == (16, 60)
    assert report.throughput.tokens == one.state.num_input_tokens_seen > 0
    assert phases(report)["train"] == pytest.approx(16 * STEP_S, abs=1e-6)
    assert phases(report)["validation"] == pytest.approx(2 * 2 * STEP_S, abs=1e-6)
    [board] = boards(tmp_path)
    found = scalars(board)
    assert {TAG, "efficiency/gpu_j_per_token", "train/mean_token_accuracy"} <= set(found)
    assert {step for step, _ in found[TAG]} <= {step for step, _ in found["train/loss"]}


def test_seq2seq(tmp_path: Path) -> None:
    """The evaluate and predict of Seq2SeqTrainer call those of Trainer."""
    clock = FakeClock()
    ours = callback(clock)
    one = trainer(
        tmp_path, TinyModel(clock), ours, eval_data=Rows(20), eval_strategy="epoch",
        make=Seq2SeqTrainer, arguments=Seq2SeqTrainingArguments,
    )  # fmt: skip
    one.train()
    one.predict(Rows(20))
    assert phases(ours.report())["validation"] == pytest.approx(10 * STEP_S, abs=1e-6)
    assert phases(ours.report())["predict"] == pytest.approx(4 * STEP_S, abs=1e-6)
    assert len(ours.report().attempts) == 2
