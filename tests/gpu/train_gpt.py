"""Trains a GPT-2 on a real GPU with Hugging Face, compared with the card's energy counter.

``python -m tests.gpu.train_gpt --out DIR [--seconds 60] [--tiny]``: a GPT-2 of 300 million
parameters in bf16 on the bytes of Python's manual, 1024 a sequence, with accumulation, evaluation
and checkpoints; then the same steps with and without the callback in turn, for this model and for
a small one. Prints a table and writes ``figures.json`` with report, journal and curves to DIR.
``--tiny`` runs everything in seconds on a CPU, as a check of this script.
"""

import argparse
import json
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pynvml
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from energy_callbacks.huggingface import GpuEnergyCallback
from energy_callbacks.report import EnergyReport
from tests.gpu.in_turn import compared


@dataclass(frozen=True)
class Size:
    """A model, its batches, and the duration of its training."""

    layers: int
    width: int
    sequence: int
    batch_size: int
    accumulation: int
    evaluate_every: int
    cost_steps: int
    cost_rounds: int

    def model(self) -> GPT2LMHeadModel:
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=256,
            n_positions=self.sequence,
            n_layer=self.layers,
            n_embd=self.width,
            n_head=self.width // 64,
            bos_token_id=0,
            eos_token_id=0,
        )
        return GPT2LMHeadModel(config)


LARGE = Size(24, 1024, 1024, 16, 2, 40, cost_steps=20, cost_rounds=2)
SMALL = Size(6, 512, 256, 16, 1, 40, cost_steps=200, cost_rounds=14)
TINY = Size(1, 64, 64, 4, 2, 5, cost_steps=8, cost_rounds=2)


class Counter(TrainerCallback):
    """The card's energy counter, read by hand just inside our own span."""

    def __init__(self) -> None:
        self.start: tuple[float | None, float] = (None, 0.0)
        self.end = self.start

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.start = counter_j(), time.monotonic()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.end = counter_j(), time.monotonic()

    def energy_j(self) -> float | None:
        before_j, after_j = self.start[0], self.end[0]
        return None if before_j is None or after_j is None else after_j - before_j


class StopAfter(TrainerCallback):
    """Ends the training after some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.until_s = float("inf")

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.until_s = time.monotonic() + self.seconds

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop |= time.monotonic() > self.until_s


class Timer(TrainerCallback):
    """Wall time of the steps after the first few, the device synchronised at both ends.

    The time to write the report after the last step is not included.
    """

    WARM_UP = 4

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.WARM_UP:
            self.start_s = synchronised_s()
        if state.global_step == state.max_steps:
            steps = state.max_steps - self.WARM_UP
            self.ms_a_step = 1e3 * (synchronised_s() - self.start_s) / steps


def synchronised_s() -> float:
    """Return the time after all work of the device."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def counter_j() -> float | None:
    """Return the card's energy counter; ``None`` without a card."""
    if not torch.cuda.is_available():
        return None
    pynvml.nvmlInit()
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3


def sequences(length: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return Python's manual in pieces; the last tenth is for evaluation."""
    text = torch.frombuffer(bytearray("\n".join(topics.values()).encode()), dtype=torch.uint8)
    rows = text.long()[: len(text) // length * length].view(-1, length)
    examples = [{"input_ids": row, "labels": row} for row in rows]
    held_out = len(examples) // 10
    return examples[:-held_out], examples[-held_out:]


def trainer(
    root: Path, size: Size, model: GPT2LMHeadModel, callbacks: list[Any], **settings: Any
) -> Trainer:
    """Return a trainer with one device, bf16, and TensorBoard every ten steps."""
    train_dataset, eval_dataset = sequences(size.sequence)
    arguments = TrainingArguments(
        output_dir=str(root),
        per_device_train_batch_size=size.batch_size,
        per_device_eval_batch_size=size.batch_size,
        gradient_accumulation_steps=size.accumulation,
        learning_rate=3e-4,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=10,
        bf16=True,
        use_cpu=not torch.cuda.is_available(),
        logging_steps=10,
        report_to=["tensorboard"],
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
        seed=0,
        **settings,
    )
    return Trainer(
        model=model,
        args=arguments,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        callbacks=callbacks,
    )


def train(root: Path, out: Path, size: Size, seconds: float) -> dict[str, Any]:
    """Train once with the callback; returns its report, and the counter over the same span."""
    ours, by_hand = GpuEnergyCallback(country="DEU", run_name="GPT-2 on bytes"), Counter()
    ran = trainer(
        root,
        size,
        size.model(),
        [ours, by_hand, StopAfter(seconds)],
        max_steps=100_000,
        eval_strategy="steps",
        eval_steps=size.evaluate_every,
        save_strategy="steps",
        save_steps=2 * size.evaluate_every,
        save_only_model=True,
        save_total_limit=1,
        include_num_input_tokens_seen=True,  # synchronises; not while the cost is measured
    )
    ran.train()
    keep(root, out)
    ran.state.save_to_json(str(out / "trainer_state.json"))
    return {
        "parameters": sum(weights.numel() for weights in ran.model.parameters()),
        "counter_gpu_j": by_hand.energy_j(),
        "counter_s": by_hand.end[1] - by_hand.start[1],
        "steps_by_trainer": ran.state.global_step,
        "tokens_by_trainer": ran.state.num_input_tokens_seen,
        **of(ours.report()),
    }


def of(report: EnergyReport) -> dict[str, Any]:
    """Return the report's figures for the same quantities."""
    gpu, total = report.energy.gpu, report.energy.total
    return {
        "report_gpu_j": gpu.energy_j,
        "report_gpu_error_j": gpu.error_j,
        "report_gpu_method": gpu.method,
        "report_total_j": total.energy_j,
        "report_s": report.run.duration_s,
        "coverage": gpu.coverage,
        "sampler_core_share": report.measuring.core_share,
        "steps": report.throughput.steps,
        "samples": report.throughput.samples,
        "tokens": report.throughput.tokens,
        "phases": {
            phase.name: {"s": phase.duration_s, "gpu_j": phase.gpu.energy_j}
            for phase in report.phases
        },
    }


def keep(root: Path, out: Path) -> None:
    """Copy the files of interest into one folder, without the weights."""
    for pattern in ("energy/energy_report.*", "energy/**/*.jsonl", "runs/**/events.out.*"):
        for path in root.glob(pattern):
            shutil.copy(path, out)


def cost(root: Path, size: Size) -> dict[str, Any]:
    """Return milliseconds a step with and without the callback, in turn; the medians' ratio."""
    times: dict[bool, list[float]] = {False: [], True: []}
    model = size.model()
    for index in range(2 * size.cost_rounds + 1):  # the first warms the device and is not counted
        has_ours = index % 2 == 1
        folder = root / f"cost{size.width}-{index}"
        timer = Timer()
        callbacks = [GpuEnergyCallback()] if has_ours else []
        settings = {"max_steps": Timer.WARM_UP + size.cost_steps, "save_strategy": "no"}
        trainer(folder, size, model, [*callbacks, timer], **settings).train()
        if index:
            times[has_ours].append(timer.ms_a_step)
    return compared(times)


def table(name: str, figures: dict[str, Any]) -> str:
    """Return the figures of a part, one a line."""
    return "\n".join([f"\n{name}", *(f"  {key:<20} {value}" for key, value in figures.items())])


def main() -> None:
    """Run the parts, print each as a table, and write all to figures.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    large, small = (TINY, TINY) if arguments.tiny else (LARGE, SMALL)
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, part in (
            ("training", lambda: train(root / "run", out, large, arguments.seconds)),
            ("cost_large", lambda: cost(root, large)),
            ("cost_small", lambda: cost(root / "small", small)),
        ):
            found[name] = part()
            print(table(name, found[name]), flush=True)
            (out / "figures.json").write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
