"""One of two gloo ranks: ``python ranks_script.py FOLDER RANK CASE``."""

import json
import sys
import time
from pathlib import Path

import torch

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.tuning import Patience, tune_batch_size

folder, rank, case = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
)
most = 24 if rank == 1 else 100


def step(size: int, accumulation: int = 1) -> None:
    """More memory on one rank; the other is slower."""
    if case == "broken" and rank == 1 and size > 4:
        raise ZeroDivisionError("of the user")
    if size > most:
        raise MemoryError(f"{size} samples")
    time.sleep(2e-4 * accumulation * (1 + size * (2 - rank)))


options = {"objective": "largest", "max_size": 64 + (rank if case == "options" else 0)}
if case == "global":
    options["global_batch_size"] = 48
told = {}
try:
    meter = EnergyMeter(config=EnergyConfig(report_dir=folder / "reports"), sources=[])
    patience = Patience(block_s=0.005, least_s=0.02, most_s=0.05, seen_s=0.2)
    result = tune_batch_size(step, meter=meter, patience=patience, **options)
    told = {"size": result.size, "trials": result.as_json()["trials"]}
except Exception as error:  # noqa: BLE001 - what it is, the test looks at
    told = {"error": f"{type(error).__name__}: {error}"}
number = torch.tensor(float(rank))
torch.distributed.all_reduce(number)
told["trained"] = float(number)
(folder / f"rank{rank}.json").write_text(json.dumps(told))
torch.distributed.destroy_process_group()
