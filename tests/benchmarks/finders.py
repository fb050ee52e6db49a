"""Compares batch-size finders on the same real trainings.

Ours for each objective, Lightning's ``BatchSizeFinder`` in both modes, and accelerate's
``find_executable_batch_size``. The training then runs with each answer and is measured in the same
way: samples per second, joules per sample and peak memory. Bars: ours never answers a size that
it did not run; on a GPU, the throughput of the knee is within 5 % of the best of all finders (3 %
by the definition of a knee, and 2 % for noise; a shared CPU varies by more).
"""

import gc
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import Any

import torch

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.tuning import Patience, Trial, tune_batch_size
from energy_callbacks.tuning.bench import Bench
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.common.finder_tasks import Task, Training, tasks

OBJECTIVES = ("knee", "energy", "throughput", "largest")
MAX_SIZE = 8192


@dataclass(frozen=True, kw_only=True)
class Row:
    """One finder on one training; figures are ``None`` if its answer does not run."""

    task: str
    finder: str
    size: int | None
    was_run: bool
    trials: int
    sizes: list[int]
    seconds: float
    samples_per_s: float | None
    j_per_sample: float | None
    j_error: float | None
    peak_bytes: int | None
    note: str = ""


Finding = tuple[int | None, list[int], str]


def ours(
    objective: str, patience: Patience, trials: int = 12
) -> Callable[[Training, EnergyMeter], Finding]:
    """Run our search, as in a user's own loop."""

    def find(training: Training, meter: EnergyMeter) -> Finding:
        optimizer = training.configure_optimizers()
        result = tune_batch_size(
            lambda size: training.plain_step(optimizer, size),
            keep=[training.net, optimizer],
            objective=objective,
            min_size=2,
            max_size=MAX_SIZE,
            max_trials=trials,
            patience=patience,
            meter=meter,
        )
        return result.size, [trial.size for trial in result.trials], ""

    return find


def lightnings(mode: str) -> Callable[[Training, EnergyMeter], Finding]:
    """Run ``Tuner.scale_batch_size`` as its documentation shows it."""

    def find(training: Training, meter: EnergyMeter) -> Finding:
        import lightning.pytorch as pl
        from lightning.pytorch.tuner import Tuner

        tried: list[int] = []
        before = training.training_step

        def counted(batch: Any, batch_idx: int = 0) -> Any:
            if not tried or tried[-1] != len(batch[0]):
                tried.append(len(batch[0]))
            return before(batch, batch_idx)

        training.training_step = counted  # type: ignore[method-assign]
        with TemporaryDirectory() as folder:
            trainer = pl.Trainer(
                default_root_dir=folder, logger=False, enable_checkpointing=False,
                enable_progress_bar=False, enable_model_summary=False, max_epochs=1, devices=1,
                precision=training.precision,
            )  # fmt: skip
            try:
                found = Tuner(trainer).scale_batch_size(training, mode=mode, max_val=MAX_SIZE)
            except ValueError as error:
                return None, tried, str(error)
        training.training_step = before  # type: ignore[method-assign]
        return found, tried, ""

    return find


def accelerates(training: Training, meter: EnergyMeter) -> Finding:
    """Run ``find_executable_batch_size`` around a few steps, starting at ``MAX_SIZE``."""
    from accelerate.utils import find_executable_batch_size

    tried: list[int] = []

    @find_executable_batch_size(starting_batch_size=MAX_SIZE)
    def train(batch_size: int) -> int:
        tried.append(batch_size)
        training.forget_batch()
        optimizer = training.configure_optimizers()
        for _ in range(3):
            training.plain_step(optimizer, batch_size)
        return batch_size

    return train(), tried, ""


def measured(training: Training, size: int, meter: EnergyMeter, patience: Patience) -> Trial:
    """Measure the training with an answer, the same way for all finders."""
    optimizer = training.configure_optimizers()
    return Bench(lambda size: training.plain_step(optimizer, size), meter, patience=patience).run(
        size
    )


def fresh(task: Task) -> Training:
    """Return a training on the device, with memory as at the start."""
    gc.collect()
    training = task.make()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        training = training.cuda()
    return training


def row(
    task: Task,
    name: str,
    find: Callable[[Training, EnergyMeter], Finding],
    meter: EnergyMeter,
    patience: Patience,
) -> Row:
    """Run one finder on a new training; its answer is measured on another one."""
    start_s = time.monotonic()
    size, tried, note = find(fresh(task), meter)
    seconds = time.monotonic() - start_s
    trial = Trial(size=size or 1)
    if size:
        training = fresh(task)
        trial = measured(training, size, meter, patience)
        training.forget_batch()
    samples = trial.samples
    return Row(
        task=task.name,
        finder=name,
        size=size,
        was_run=size in tried,
        trials=len(tried),
        sizes=tried,
        seconds=seconds,
        samples_per_s=trial.samples_per_s,
        j_per_sample=trial.j_per_sample,
        j_error=trial.energy.error_j / samples if samples else None,
        peak_bytes=trial.peak_bytes,
        note=note or trial.reason[:60],
    )


def show(rows: Sequence[Row]) -> None:
    """Print a row for each finder."""
    for task in dict.fromkeys(one.task for one in rows):
        print(f"\n{task}")
        head = f"{'finder':<30}{'size':>7}{'samples/s':>11}{'J/sample':>20}{'peak GiB':>10}"
        print(f"{head}{'trials':>8}{'seconds':>9}")
        for one in rows:
            if one.task != task:
                continue
            joules = (
                f"{one.j_per_sample:.4g} ± {one.j_error:.1g}" if one.j_per_sample else "not known"
            )
            rate = f"{one.samples_per_s:.5g}" if one.samples_per_s else "does not run"
            peak = f"{one.peak_bytes / 2**30:.1f}" if one.peak_bytes else "-"
            note = "" if one.was_run else "  never run by the finder"
            print(
                f"{one.finder:<30}{one.size or '-':>7}{rate:>11}{joules:>20}{peak:>10}"
                f"{one.trials:>8}{one.seconds:>9.1f}{note}  {one.note}"
            )


def judged(rows: Sequence[Row]) -> Iterator[Bar]:
    """Return the bars of our finder."""
    for one in rows:
        if not one.finder.startswith("energy_callbacks"):
            continue
        name = f"{one.task}: {one.finder}"
        yield Bar(name=f"{name}: answered a size that it ran", value=one.was_run, at_least=1)
        if one.finder == "energy_callbacks, knee" and torch.cuda.is_available():
            best = max(other.samples_per_s or 0.0 for other in rows if other.task == one.task)
            share = (one.samples_per_s or 0.0) / best if best else math.nan
            yield Bar(name=f"{name}: share of the best throughput", value=share, at_least=0.95)


def main() -> int:
    """Print the table and return the exit status."""
    arguments = bars.parser(__doc__).parse_args()
    warnings.filterwarnings("ignore")
    patience = Patience(least_s=1.5, most_s=4.0)
    if arguments.quick:
        patience = Patience(block_s=0.05, least_s=0.2, most_s=0.4, seen_s=1.0)
    objectives = OBJECTIVES[:1] if arguments.quick else OBJECTIVES
    trials = {"largest": 20} | dict.fromkeys(OBJECTIVES[:1], 8 if arguments.quick else 12)
    finders: list[tuple[str, Callable[[Training, EnergyMeter], Finding]]] = [
        *(
            (f"energy_callbacks, {name}", ours(name, patience, trials.get(name, 12)))
            for name in objectives
        ),
        ("Lightning, power", lightnings("power")),
        ("Lightning, binsearch", lightnings("binsearch")),
        ("accelerate", accelerates),
    ]
    rows = []
    with (
        TemporaryDirectory() as folder,
        EnergyMeter(config=EnergyConfig(report_dir=folder)) as meter,
    ):
        for task in tasks():
            rows += [row(task, name, find, meter, patience) for name, find in finders]
    show(rows)
    return bars.finish("finders", arguments, list(judged(rows)), rows=[asdict(one) for one in rows])


if __name__ == "__main__":
    sys.exit(main())
