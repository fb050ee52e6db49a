"""Data that takes time to load, for trainings in torch."""

import torch
from torch.utils.data import Dataset

from energy_callbacks.testing import FakeClock
from tests.integrations.contract.lab import BATCH_SIZE


class SlowRows(Dataset):
    """Fixed rows of four numbers, each of which takes its share of the time of a batch.

    Args:
        clock: time.
        samples: how many rows.
        load_s: how long a batch takes to load.
    """

    def __init__(self, clock: FakeClock, samples: int, load_s: float = 0.0) -> None:
        self._rows = torch.randn(samples, 4, generator=torch.Generator().manual_seed(0))
        self._clock = clock
        self._load_s = load_s

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._load_s:
            self._clock.advance(self._load_s / BATCH_SIZE)
        return self._rows[index]
