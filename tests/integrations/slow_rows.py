"""A torch dataset that takes time to load."""

import torch
from torch.utils.data import Dataset

from energy_callbacks.testing import FakeClock
from tests.integrations.contract.lab import BATCH_SIZE


class SlowRows(Dataset):
    """Fixed rows of four random numbers; reading a row advances the clock.

    Args:
        clock: the virtual clock.
        samples: number of rows.
        load_s: time to load a full batch in s; a row takes ``load_s / BATCH_SIZE``.
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
