"""Runs the tuner on a real GPU, and measures each of its sizes again.

``python -m tests.gpu.tuner_repeats [--json FILE]``: a search for the knee with
ResNet-50, and one for the fewest joules a sample with a transformer. Each size that ran is then
measured once more, in the same order. Prints the table of each search, and for each size the stated
95 % interval of throughput and energy beside the repeat. The interval is that of the size's mean,
and the repeat has a random error of the same kind. So 95 % of the differences are within 1.41 times
the interval after one trial (column *agree*), and 83 % of the repeats inside the interval itself
(column *inside*), if the errors are right. The gain of the sensor is the same in both and is left
out.

It is meant to take at most three minutes on an H200. Without a GPU it trains a small network for
some seconds, as a check of this script.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.records import NORMAL_95
from energy_callbacks.tuning import BatchSizeResult, Patience, Trial, tune_batch_size
from energy_callbacks.tuning.bench import Bench
from energy_callbacks.tuning.search.settings import Objective
from tests.benchmarks.common.finder_tasks import Task, digits, resnet, transformer

_SEARCHES: Final[tuple[tuple[Task, Objective], ...]] = (
    (Task("ResNet-50, images", resnet), "knee"),
    (Task("transformer, text", transformer), "energy"),
)
_PATIENCE: Final = Patience(least_s=1.5, most_s=2.5)
_CHECK: Final[tuple[tuple[Task, Objective], ...]] = ((Task("digits", digits), "knee"),)
_SHORT: Final = Patience(block_s=0.02, least_s=0.1, most_s=0.2, seen_s=0.5)


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """One quantity of one size: in the search, and measured again.

    Attributes:
        size: number of samples in a batch.
        quantity: ``samples/s`` or ``J/sample``.
        value: mean over the trials of the search.
        error: half-width of the 95 % interval of this mean, without the systematic error.
        trials: number of trials in the search.
        again: value of the repeat.
    """

    size: int
    quantity: str
    value: float
    error: float
    trials: int
    again: float

    @property
    def is_inside(self) -> bool:
        """Whether the repeat is inside the interval."""
        return abs(self.again - self.value) <= self.error

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the intervals of both, without the systematic error."""
        return abs(self.again - self.value) <= self.error * math.sqrt(1.0 + self.trials)


def searched(
    task: Task, objective: Objective, meter: EnergyMeter, patience: Patience
) -> dict[str, Any]:
    """Run a search, measure each of its sizes again, and print both."""
    training = task.make().to(_device())
    optimizer = training.configure_optimizers()

    def step(size: int) -> None:
        training.plain_step(optimizer, size)

    start_s = time.monotonic()
    result = tune_batch_size(
        step,
        keep=[training.net, optimizer],
        restore=training.forget_batch,
        objective=objective,
        meter=meter,
        patience=patience,
    )
    search_s = time.monotonic() - start_s
    print(f"\n{task.name}, {objective}: {len(result.trials)} trials in {search_s:.0f} s")
    print("sizes in order:", *(trial.size for trial in result.trials))
    print(result)
    bench = Bench(step, meter, training.forget_batch, patience)
    sizes = list(dict.fromkeys(trial.size for trial in result.trials if trial.status == "ok"))
    again = [bench.run(size) for size in sizes]
    found = [repeat for trial in again for repeat in repeats(result, trial)]
    show(found)
    return {
        "task": task.name,
        "objective": objective,
        "search_s": search_s,
        "result": result.as_json(),
        "again": [asdict(trial) for trial in again],
        "repeats": [
            asdict(one) | {"is_inside": one.is_inside, "agrees": one.agrees} for one in found
        ],
    }


def repeats(result: BatchSizeResult, again: Trial) -> Iterator[Repeat]:
    """Compare the repeat of a size with the trials of the search."""
    trials = [trial for trial in result.trials if (trial.size, trial.status) == (again.size, "ok")]
    for quantity, name, error in (
        ("samples/s", "samples_per_s", "time_error"),
        ("J/sample", "j_per_sample", "energy_error"),
    ):
        values = [getattr(trial, name) for trial in trials]
        repeated = getattr(again, name)
        if repeated is None or None in values:
            continue
        value = statistics.fmean(values)
        relative = math.hypot(*(getattr(trial, error) for trial in trials)) / len(trials)
        yield Repeat(
            size=again.size,
            quantity=quantity,
            value=value,
            error=NORMAL_95 * relative * value,
            trials=len(trials),
            again=repeated,
        )


def show(found: list[Repeat]) -> None:
    """Print a line for each size and quantity, and the shares of repeats that agree."""
    print(f"\n{'size':>6} {'quantity':<10}{'search':>22}{'trials':>7}{'again':>12}  inside agree")
    for one in sorted(found, key=lambda one: (one.quantity, one.size)):
        search = f"{one.value:.5g} ± {one.error:.2g}"
        print(
            f"{one.size:>6} {one.quantity:<10}{search:>22}{one.trials:>7}{one.again:>12.5g}  "
            f"{'yes' if one.is_inside else 'no':<7}{'yes' if one.agrees else 'no'}"
        )
    inside, agree = sum(one.is_inside for one in found), sum(one.agrees for one in found)
    print(f"of {len(found)} repeats {inside} are inside the interval, {agree} agree")


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def main() -> int:
    """Run all searches."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    arguments = parser.parse_args()
    is_gpu = torch.cuda.is_available()
    searches, patience = (_SEARCHES, _PATIENCE) if is_gpu else (_CHECK, _SHORT)
    print(torch.cuda.get_device_name() if is_gpu else "no GPU: a check of this script")
    with (
        TemporaryDirectory() as folder,
        EnergyMeter(config=EnergyConfig(report_dir=folder)) as meter,
    ):
        found = []
        for task, objective in searches:
            found.append(searched(task, objective, meter, patience))
            if arguments.json is not None:
                arguments.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
