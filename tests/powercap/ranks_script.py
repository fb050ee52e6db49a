"""One of two ranks under DDP (gloo): ``python -m tests.powercap.ranks_script RANK FOLDER DYING``.

Each rank measures a simulated card; the first rank measures both. The training ends when two
settings have been set, or after a long time. The rank ``DYING`` kills itself after the first
setting; -1 for none.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.powercap import PowerLimitOptimizer
from energy_callbacks.powercap.actuators import privilege
from tests.fake_nvml.changes import read_changes

STEP_S = 0.02
SETTINGS = 2
LONGEST_S = 300.0


def settings_so_far() -> int:
    """The number of limits that were set on both cards; they are set one after the other."""
    changes = read_changes(Path(os.environ["FAKE_NVML_CONFIG"]))
    return min(sum(change.card == card for change in changes) for card in (0, 1))


def train(rank: int, folder: Path, dying: int) -> None:
    """Train until enough settings were seen."""
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = EnergyConfig(
        report_dir=folder / "run",
        devices=[0, 1] if rank == 0 else [1],
        sample_interval_s=0.1,
        country="DEU",
        power_limit=PowerLimitOptimizer(window_steps=4, window_s=0.3, allow_changes=True),
    )
    end_s = time.monotonic() + LONGEST_S
    with EnergyMeter(config=config) as meter, meter.phase("train"):
        is_over = False
        while not is_over:
            time.sleep(STEP_S)
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
            meter.step(samples=2)
            if rank == dying and settings_so_far():
                os.kill(os.getpid(), signal.SIGKILL)
            is_enough = settings_so_far() >= SETTINGS and dying < 0
            flag = torch.tensor(float(rank == 0 and (is_enough or time.monotonic() > end_s)))
            torch.distributed.all_reduce(flag)
            is_over = bool(flag)


def main() -> None:
    """Read the arguments, and train."""
    rank, folder, dying = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    privilege.is_admin = lambda: True
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    train(rank, folder, dying)


if __name__ == "__main__":
    main()
