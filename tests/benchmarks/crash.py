"""Kills a real Lightning training with kill -9 at random, resumes it, and checks the totals.

``python -m tests.benchmarks.crash [--quick] [--json FILE]``: each trial trains on the CPU with a
fake card of 300 W (a library with NVML's interface, in real time) and a checkpoint every 100
steps. The process is killed at a random moment, and the training is resumed from the newest
checkpoint in a new log folder, as Lightning creates one. A bar is missed if in any trial

* the report lacks more than a second of the card's energy before the kill;
* the energy curve does not continue from there to the report's total of both attempts;
* a step is counted twice, a repeated step is not reported as repeated, or a step is missing that
  was not one of the last second;
* a line of a journal other than the last one cannot be read.

Then plain trainings that sleep, that run Python code, and that call C functions which hold the
interpreter are killed at random moments. No other thread can run Python code during such a C call,
and a sensor is read in several turns. A bar is missed if one of the first two loses more than a
second; what the others lose is shown.
"""

import csv
import ctypes
import json
import logging
import os
import random
import signal
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal import journal
from energy_callbacks.lightning import GpuEnergyCallback
from energy_callbacks.report import EnergyReport, build
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.fake_nvml import Constant, FakeNvml, Scenario, h200

TRIALS, QUICK_TRIALS = 20, 3
POWER_W = 300.0
STEPS, STEP_S = 500, 0.01
SAVED_EACH = 100
# In steps, of which a busy machine does fewer per second. The kill comes after the first
# checkpoint, as there would be nothing to resume from.
EARLIEST, LATEST = 160, 480
MOST_LOST_S = 1.0
# Runs are written to memory where that is possible: while another program writes hundreds of MB to
# a disk, a line for the same disk can wait for seconds.
IN_MEMORY: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
# Plain trainings: how many are killed of each kind, and when after their first step.
KILLS, QUICK_KILLS = 10, 2
EARLIEST_S, LATEST_S, QUICK_LATEST_S = 3.0, 15.0, 5.0


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a kill cost, and whether all is correct after the resume.

    Attributes:
        killed_s: time of the kill after the start of the first attempt.
        lost_s: energy that the report of the killed run lacks, in seconds of the card.
        lost_steps: number of steps that it lacks.
        replayed_steps: number of steps that the second attempt repeated.
        is_continued: whether the curve continues to the report's total, the sum of both attempts.
        is_counted_once: whether the run has all its steps except those lost, and the others are
            reported as repeated.
        is_readable: whether all journals can be read, except for a last line that was cut off.
    """

    killed_s: float
    lost_s: float
    lost_steps: int
    replayed_steps: int
    is_continued: bool
    is_counted_once: bool
    is_readable: bool


class Module(pl.LightningModule):
    """A small model whose steps take 10 ms; each is noted in a file when it ends."""

    def __init__(self, done: Path) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.done = done

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        time.sleep(STEP_S)
        return self.layer(batch[0]).square().mean()

    def on_train_batch_end(self, *_: object) -> None:
        with self.done.open("a") as file:
            file.write(".")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def sleeps() -> None:
    """Wait as for a device, without the interpreter."""
    time.sleep(STEP_S)


def runs_python() -> None:
    """Run Python code, which lets other threads run every 5 ms (``sys.getswitchinterval``)."""
    end_s = time.perf_counter() + STEP_S
    while time.perf_counter() < end_s:
        pass


def calls_c(duration_s: float) -> None:
    """Call a C function that holds the interpreter, as some extension modules do."""
    ctypes.PyDLL(None).usleep(round(1e6 * duration_s))


LOADS: Final[Mapping[str, Callable[[], None]]] = {
    "sleeping": sleeps,
    "Python": runs_python,
    "C calls of 10 ms": partial(calls_c, 0.01),
    "C calls of 0.1 s": partial(calls_c, 0.1),
    "C calls of 2 s": partial(calls_c, 2.0),
}
JUDGED: Final = ("sleeping", "Python")


@dataclass(frozen=True, kw_only=True)
class Kill:
    """What the kill of a plain training cost.

    Attributes:
        load: what the training did, see ``LOADS``.
        killed_s: time of the kill after the start.
        lost_s: energy that the report lacks, in seconds of the card.
        lost_steps: number of steps that it lacks.
    """

    load: str
    killed_s: float
    lost_s: float
    lost_steps: int


def main() -> int:
    """Run all trials, print a table, and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # Lightning's own lines, twice a trial
    warnings.simplefilter("ignore")
    dice = random.Random(arguments.seed)
    trials = []
    print("killed after  lost energy  lost steps  repeated  continued  counted once  readable")
    for _ in range(QUICK_TRIALS if arguments.quick else TRIALS):
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            trials.append(tried(Path(folder), dice.uniform(EARLIEST, LATEST)))
        print(row(trials[-1]), flush=True)
    lost_s = [trial.lost_s for trial in trials]
    print(f"lost: {statistics.median(lost_s):.2f} s at the median, {max(lost_s):.2f} s at most")
    kills = killed_trainings(dice, is_quick=arguments.quick)
    found = judged(trials) + judged_kills(kills)
    figures = {"trials": [asdict(one) for one in trials], "kills": [asdict(one) for one in kills]}
    return bars.finish("crash", arguments, found, **figures)


def killed_trainings(dice: random.Random, *, is_quick: bool) -> list[Kill]:
    """Kill plain trainings of each load, or of those with a bar, and print what was lost."""
    count, latest_s = (QUICK_KILLS, QUICK_LATEST_S) if is_quick else (KILLS, LATEST_S)
    kills: list[Kill] = []
    print("\nplain training    killed  lost energy: median  most  lost steps: most")
    for load in JUDGED if is_quick else LOADS:
        for _ in range(count):
            with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
                kills.append(killed(Path(folder), load, dice.uniform(EARLIEST_S, latest_s)))
        lost_s = [kill.lost_s for kill in kills if kill.load == load]
        steps = max(kill.lost_steps for kill in kills if kill.load == load)
        print(
            f"{load:<16}{count:>8}{statistics.median(lost_s):>19.2f} s{max(lost_s):>6.2f} s"
            f"{steps:>14}",
            flush=True,
        )
    return kills


def judged_kills(kills: Sequence[Kill]) -> list[Bar]:
    """Return the bars of the killed plain trainings."""
    lost_s = {load: max(kill.lost_s for kill in kills if kill.load == load) for load in JUDGED}
    return [
        Bar(name=f"{load}: s of energy lost", value=most_s, at_most=MOST_LOST_S)
        for load, most_s in lost_s.items()
    ]


def killed(folder: Path, load: str, after_s: float) -> Kill:
    """Kill a plain training so long after its first step, and read its report."""
    done = folder / "done"
    child = forked(lambda: train_plainly(folder, done, LOADS[load]))
    while not done.exists():
        time.sleep(0.001)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    killed_unix_s = time.time()
    os.waitpid(child, 0)
    report = build(folder / "run")
    truth_s = killed_unix_s - report.attempts[0].started_unix_s
    return Kill(
        load=load,
        killed_s=truth_s,
        lost_s=truth_s - (report.energy.gpu.energy_j or 0.0) / POWER_W,
        lost_steps=len(done.read_text()) - report.attempts[0].steps,
    )


def train_plainly(folder: Path, done: Path, work: Callable[[], None]) -> None:
    """Train in a plain loop until the process is killed; each step is noted in a file."""
    FakeNvml(Scenario(cards=(h200(Constant(POWER_W)),)), folder, virtual=False)
    config = EnergyConfig(report_dir=folder / "run", devices=[0])
    with EnergyMeter(config=config) as meter, meter.phase("train"), done.open("a") as file:
        while True:
            work()
            meter.step(samples=8)
            file.write(".")
            file.flush()


def judged(trials: Sequence[Trial]) -> list[Bar]:
    """Return the bars of all trials."""
    lost_s = max(trial.lost_s for trial in trials)
    counts = {
        "curves that do not go on": sum(not trial.is_continued for trial in trials),
        "trials with wrong steps": sum(not trial.is_counted_once for trial in trials),
        "trials with journals that cannot be read": sum(not t.is_readable for t in trials),
    }
    return [
        Bar(name="s of energy lost", value=lost_s, at_most=MOST_LOST_S),
        *(Bar(name=name, value=count, at_most=0) for name, count in counts.items()),
    ]


def row(trial: Trial) -> str:
    """Return a row of the table."""
    is_right = (trial.is_continued, trial.is_counted_once, trial.is_readable)
    words = "  ".join(f"{'yes' if one else 'NO':>9}" for one in is_right)
    return (
        f"{trial.killed_s:10.2f} s  {trial.lost_s:9.2f} s  {trial.lost_steps:10}"
        f"  {trial.replayed_steps:8}  {words}"
    )


def tried(folder: Path, after_steps: float) -> Trial:
    """Train, kill after so many steps, read the report; resume, and read it again."""
    done = folder / "done"
    child = forked(lambda: train(folder, done, resumes=False))
    while not done.exists() or len(done.read_text()) < int(after_steps):
        time.sleep(0.001)
    time.sleep(after_steps % 1.0 * STEP_S)
    os.kill(child, signal.SIGKILL)
    killed_unix_s = time.time()
    os.waitpid(child, 0)
    executed = len(done.read_text())
    [killed_folder] = folder.glob("logs/version_0/energy")
    killed = build(killed_folder)
    [first] = killed.attempts
    truth_j = POWER_W * (killed_unix_s - first.started_unix_s)
    last = folder / "checkpoints" / "last.ckpt"
    saved = torch.load(last, weights_only=False)["global_step"] if last.exists() else 0
    resumed_folder = folder / "logs" / "version_1" / "energy"
    os.waitpid(forked(lambda: train(folder, done, resumes=True)), 0)
    report = build(resumed_folder)
    is_readable = all(map(reads, [*journal.find(killed_folder), *journal.find(resumed_folder)]))
    return Trial(
        killed_s=killed_unix_s - first.started_unix_s,
        lost_s=(truth_j - (killed.energy.gpu.energy_j or 0.0)) / POWER_W,
        lost_steps=executed - first.steps,
        replayed_steps=report.throughput.replayed_steps,
        is_continued=goes_on(folder, killed, report),
        is_counted_once=counts_once(report, saved),
        is_readable=is_readable,
    )


def counts_once(report: EnergyReport, saved: int) -> bool:
    """Whether each planned step counts once, except lost ones, and repeated ones are reported."""
    done, (first, second) = report.throughput, report.attempts
    lost = max(saved - first.steps, 0)
    return (
        second.steps == STEPS - saved
        and done.replayed_steps == max(first.steps - saved, 0)
        and done.steps == STEPS - lost
    )


def goes_on(folder: Path, killed: EnergyReport, report: EnergyReport) -> bool:
    """Whether the curve of the second attempt goes from the energy of the first to the total."""
    with (folder / "logs" / "version_1" / "metrics.csv").open() as file:
        found = [line["energy/gpu_wh"] for line in csv.DictReader(file)]
    curve_j = [3600.0 * float(wh) for wh in found if wh]
    before_j, total_j = killed.energy.gpu.energy_j or 0.0, report.energy.gpu.energy_j or 0.0
    by_attempt_j = sum(attempt.energy.energy_j or 0.0 for attempt in report.attempts)
    return (
        len(report.attempts) == 2
        and report.run.run_id == killed.run.run_id
        and report.run.status == "finished"
        and curve_j == sorted(curve_j)
        and curve_j[0] > before_j
        and abs(curve_j[-1] / total_j - 1.0) < 1e-6
        and abs(by_attempt_j / (report.energy.total.energy_j or 0.0) - 1.0) < 1e-9
    )


def reads(path: Path) -> bool:
    """Whether every line is JSON, except for a last one without a line end."""
    *lines, last = path.read_text(encoding="utf-8").split("\n")
    try:
        for line in lines:
            json.loads(line)
    except ValueError:
        return False
    return not last or len(lines) > 0


def forked(work: Callable[[], None]) -> int:
    """Fork a child that does some work, with all imports done; returns its process id."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    finally:
        sys.stdout.flush()
        os._exit(0)


def train(folder: Path, done: Path, *, resumes: bool) -> None:
    """Train, from the newest checkpoint if the training is resumed."""
    FakeNvml(Scenario(cards=(h200(Constant(POWER_W)),)), folder, virtual=False)
    saves = ModelCheckpoint(
        folder / "checkpoints", every_n_train_steps=SAVED_EACH, save_top_k=1, save_last="link"
    )
    trainer = pl.Trainer(
        accelerator="cpu", max_steps=STEPS, max_epochs=-1, log_every_n_steps=10,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        logger=CSVLogger(folder, name="logs", flush_logs_every_n_steps=10),
        callbacks=[ours := GpuEnergyCallback(devices=[0]), saves],
    )  # fmt: skip
    last = folder / "checkpoints" / "last.ckpt"
    data = DataLoader(TensorDataset(torch.randn(STEPS * 4, 4)), batch_size=4)
    trainer.fit(Module(done), data, ckpt_path=last if resumes and last.exists() else None)
    ours.wait_for_report()  # ``forked`` ends without exit handlers


if __name__ == "__main__":
    sys.exit(main())
