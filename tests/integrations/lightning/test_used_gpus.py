from types import SimpleNamespace
from typing import Any

import pytest
import torch

from energy_callbacks_lightning import loop


@pytest.mark.parametrize(
    ("device", "local_rank", "used"),
    [
        ("cuda:1", 0, (0, 1)),
        ("cuda:1", 1, (1,)),
        ("xpu:0", 0, ("xpu:0", "xpu:1")),
        ("xpu:1", 1, ("xpu:1",)),
        ("cpu", 0, ()),
        ("meta", 0, ()),
    ],
)
def test_devices_of_the_trainer(device: str, local_rank: int, used: tuple[int | str, ...]) -> None:
    """The first rank of a host measures the GPUs of all ranks; all but CUDA's have names."""
    trainer: Any = SimpleNamespace(
        strategy=SimpleNamespace(root_device=torch.device(device)),
        device_ids=[0, 1],
        local_rank=local_rank,
    )

    assert loop.used_gpus(trainer) == used
