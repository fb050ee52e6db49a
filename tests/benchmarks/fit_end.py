"""Measures how much later ``fit`` returns with us: ``python -m tests.benchmarks.fit_end``.

Each framework trains in its own process on the CPU, in turn without and with the callback, with
TensorBoard. The figures are the time from the last batch to the statement after ``fit`` (or
``train``), and the time from there until the files of the report are complete.
"""

import importlib.util
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.benchmarks import bars
from tests.benchmarks.bars import Bar

# Packages that each framework needs.
FRAMEWORKS: Final = {"lightning": "lightning", "keras": "keras", "huggingface": "transformers"}
PAIRS, QUICK_PAIRS = 20, 4
LATER_MS, FILES_S = 50.0, 5.0
BATCHES, BATCH_SIZE, STEP_S = 150, 4, 0.002


class LastBatch:
    """Notes when the newest batch ended."""

    def __init__(self) -> None:
        self.t_s = 0.0

    def note(self) -> None:
        """Call this at the end of each batch."""
        self.t_s = time.perf_counter()


# Trains once in a folder, with our callback if one is given.
Fit = Callable[[Path, LastBatch, Any], None]


def lightning() -> tuple[Fit, type]:
    """Return a function that trains with Lightning, and our callback for it."""
    import lightning.pytorch as pl
    import torch
    from lightning.pytorch.callbacks import LambdaCallback
    from lightning.pytorch.loggers import TensorBoardLogger
    from torch.utils.data import DataLoader

    from energy_callbacks.lightning import GpuEnergyCallback

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            time.sleep(STEP_S)
            loss = self.layer(batch).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    def fit(folder: Path, last: LastBatch, ours: Any) -> None:
        callbacks = [LambdaCallback(on_train_batch_end=lambda *_: last.note())]
        trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=1,
            logger=TensorBoardLogger(folder),
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            callbacks=[*callbacks, *([ours] if ours else [])],
        )
        trainer.fit(Model(), DataLoader(torch.randn(BATCHES * BATCH_SIZE, 4), BATCH_SIZE))

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return fit, GpuEnergyCallback


def keras() -> tuple[Fit, type]:
    """Return a function that trains with Keras, and our callback for it."""
    import keras
    import numpy as np

    from energy_callbacks.keras import GpuEnergyCallback

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    rows = np.random.default_rng(0).normal(size=(BATCHES * BATCH_SIZE, 4))

    class Tick(keras.callbacks.Callback):
        def __init__(self, last: LastBatch) -> None:
            super().__init__()
            self.last = last

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(STEP_S)
            self.last.note()

    def fit(folder: Path, last: LastBatch, ours: Any) -> None:
        callbacks = [keras.callbacks.TensorBoard(folder), Tick(last), *([ours] if ours else [])]
        model.fit(rows, rows[:, :1], batch_size=BATCH_SIZE, verbose=0, callbacks=callbacks)

    return fit, GpuEnergyCallback


def huggingface() -> tuple[Fit, type]:
    """Return a function that trains with the Trainer, and our callback for it."""
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from energy_callbacks.huggingface import GpuEnergyCallback

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            time.sleep(STEP_S)
            return {"loss": (self.layer(x) - labels).square().mean()}

    class Tick(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def __init__(self, last: LastBatch) -> None:
            self.last = last

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.last.note()

    rows = [{"x": torch.randn(4), "labels": torch.zeros(1)} for _ in range(BATCHES * BATCH_SIZE)]

    def fit(folder: Path, last: LastBatch, ours: Any) -> None:
        arguments = TrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=BATCH_SIZE,
            num_train_epochs=1,
            logging_steps=50,
            save_strategy="no",
            report_to=["tensorboard"],
            disable_tqdm=True,
            use_cpu=True,
        )
        callbacks = [Tick(last), *([ours] if ours else [])]
        Trainer(Model(), arguments, train_dataset=rows, callbacks=callbacks).train()

    return fit, GpuEnergyCallback


def child(framework: str, pairs: int, file: Path) -> int:
    """Train in this process, and write the times to a file."""
    fit, ours = {"lightning": lightning, "keras": keras, "huggingface": huggingface}[framework]()
    last = LastBatch()
    found: dict[str, list[float]] = {"without_ms": [], "with_ms": [], "files_s": []}

    def end_ms(folder: Path, callback: Any) -> float:
        fit(folder, last, callback)
        return 1e3 * (time.perf_counter() - last.t_s)

    with tempfile.TemporaryDirectory() as place:
        for number in range(-1, pairs):  # the first pair is not counted: it imports
            folder, callback = Path(place) / str(number), ours()
            without_ms = end_ms(folder / "without", None)
            with_ms = end_ms(folder / "with", callback)
            ended_s = time.perf_counter()
            assert callback.wait_for_report() is not None, "there is no report"
            if number >= 0:
                found["without_ms"].append(without_ms)
                found["with_ms"].append(with_ms)
                found["files_s"].append(time.perf_counter() - ended_s)
    file.write_text(json.dumps(found), encoding="utf-8")
    return 0


def measured(framework: str, pairs: int) -> dict[str, list[float]]:
    """Return the times of a framework, measured in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "times.json"
        options = ["--child", framework, "--pairs", str(pairs), "--json", str(file)]
        command = [sys.executable, "-m", "tests.benchmarks.fit_end", *options]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the training with {framework} failed:\n{done.stderr[-3000:]}")
        times: dict[str, list[float]] = json.loads(file.read_text(encoding="utf-8"))
    return times


def later_ms(times: dict[str, list[float]]) -> float:
    """Return how much later a training returns with our callback, the median of all pairs, ms."""
    pairs = zip(times["with_ms"], times["without_ms"], strict=True)
    return statistics.median(with_ms - without_ms for with_ms, without_ms in pairs)


def judged(framework: str, times: dict[str, list[float]]) -> list[Bar]:
    """Return the bars of one framework."""
    is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    files_s = statistics.median(times["files_s"])
    name = f"{framework}: s until the files of the report are complete"
    return [
        Bar(name=f"{framework}: ms later", value=later_ms(times), at_most=LATER_MS),
        Bar(name=name, value=files_s, at_most=FILES_S, is_judged=not is_busy),
    ]


def table(found: dict[str, dict[str, list[float]]]) -> str:
    """Return the medians as text."""
    lines = [f"{'medians':<14}{'without':>12}{'with':>12}{'later':>12}{'files after':>14}"]
    for framework, times in found.items():
        without_ms, with_ms, files_s = (statistics.median(one) for one in times.values())
        lines.append(
            f"{framework:<14}{without_ms:>9.1f} ms{with_ms:>9.1f} ms{later_ms(times):>9.1f} ms"
            f"{files_s:>12.1f} s"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure all frameworks, print the table, and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--only", choices=FRAMEWORKS, help="measure one framework")
    parser.add_argument("--child", choices=FRAMEWORKS, help="internal: train in this process")
    parser.add_argument("--pairs", type=int, help="number of trainings without and with us")
    arguments = parser.parse_args()
    pairs = arguments.pairs or (QUICK_PAIRS if arguments.quick else PAIRS)
    if arguments.child:
        return child(arguments.child, pairs, arguments.json)
    wanted = [arguments.only] if arguments.only else list(FRAMEWORKS)
    is_there = importlib.util.find_spec
    found = {name: measured(name, pairs) for name in wanted if is_there(FRAMEWORKS[name])}
    if not found:
        return bars.skip(arguments, f"not installed: {', '.join(wanted)}")
    print(f"load {os.getloadavg()[0]:.1f}\n{table(found)}")
    all_bars = [bar for name, times in found.items() for bar in judged(name, times)]
    return bars.finish("fit_end", arguments, all_bars, frameworks=found)


if __name__ == "__main__":
    sys.exit(main())
