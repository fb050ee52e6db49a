from types import SimpleNamespace
from typing import Any

import pytest
import torch

from energy_callbacks_huggingface import loop


def arguments(device: str, **changes: Any) -> Any:
    """Arguments of a training on one device."""
    plain = {"world_size": 1, "n_gpu": 1, "process_index": 0, "local_process_index": 0}
    return SimpleNamespace(device=torch.device(device), **{**plain, **changes})


@pytest.mark.parametrize(
    ("device", "used"),
    [
        ("cuda:1", (1,)),
        ("xpu:1", ("xpu:1",)),
        ("xpu", ("xpu:0",)),
        ("mps", ("mps:0",)),
        ("cpu", ()),
        ("meta", ()),
    ],
)
def test_device_of_the_trainer(device: str, used: tuple[int | str, ...]) -> None:
    """GPUs other than those of CUDA have names; other devices are no GPUs."""
    assert loop.used_gpus(arguments(device), None) == used


@pytest.mark.parametrize(("kind", "used"), [("cuda", (0, 1)), ("xpu", ("xpu:0", "xpu:1"))])
def test_device_map(kind: str, used: tuple[int | str, ...]) -> None:
    """The layers of a model may be on several GPUs of any kind."""
    model = SimpleNamespace(hf_device_map={"a": 0, "b": f"{kind}:1", "c": "cpu"})

    assert loop.used_gpus(arguments(kind), model) == used


def test_first_rank_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """It measures the GPUs of all ranks that it sees."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(torch.xpu, "device_count", lambda: 2)

    assert loop.used_gpus(arguments("xpu:0", world_size=2), None) == ("xpu:0", "xpu:1")
    second = arguments("xpu:1", world_size=2, process_index=1, local_process_index=1)
    assert loop.used_gpus(second, None) == ("xpu:1",)
