"""Two gloo ranks: ``python ranks_script.py FOLDER CASE...``, one case after the other.

The second is a fork of the first, made when PyTorch has been imported and has done nothing yet.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.tuning import Patience, tune_batch_size


class Step:
    """A training step. One rank has more memory, and the other is slower."""

    def __init__(self, rank: int, case: str) -> None:
        self.rank, self.case = rank, case
        self.most = 24 if rank == 1 else 100

    def __call__(self, size: int, accumulation: int = 1) -> None:
        if self.case == "broken" and self.rank == 1 and size > 4:
            raise ZeroDivisionError("of the user")
        if size > self.most:
            raise MemoryError(f"{size} samples")
        time.sleep(2e-4 * accumulation * (1 + size * (2 - self.rank)))


def searched(folder: Path, rank: int, case: str) -> dict[str, Any]:
    """Return the result of the search on this rank."""
    options: dict[str, Any] = {"objective": "largest", "max_size": 64}
    if case == "options":
        options["max_size"] += rank
    if case == "global":
        options["global_batch_size"] = 48
    meter = EnergyMeter(config=EnergyConfig(report_dir=folder / "reports"), sources=[])
    patience = Patience(block_s=0.005, least_s=0.02, most_s=0.05, seen_s=0.2)
    try:
        result = tune_batch_size(Step(rank, case), meter=meter, patience=patience, **options)
    except Exception as error:  # noqa: BLE001 - what it is, the test looks at
        return {"error": f"{type(error).__name__}: {error}"}
    return {"size": result.size, "trials": result.as_json()["trials"]}


def train(folder: Path, rank: int, cases: list[str]) -> None:
    """Search and then train, in each case."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    told = {}
    for case in cases:
        told[case] = searched(folder / case, rank, case)
        number = torch.tensor(float(rank))
        torch.distributed.all_reduce(number)
        told[case]["trained"] = float(number)
    (folder / f"rank{rank}.json").write_text(json.dumps(told))
    torch.distributed.destroy_process_group()


def main(folder: str, *cases: str) -> None:
    """Run on both ranks.

    Raises:
        SystemExit: where the second has failed.
    """
    second = os.fork()
    train(Path(folder), 0 if second else 1, list(cases))
    if second:
        _, status = os.waitpid(second, 0)
        sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(*sys.argv[1:])
