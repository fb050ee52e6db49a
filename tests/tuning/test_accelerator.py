"""Devices as their frameworks tell of them; no framework is woken."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from energy_callbacks.tuning import accelerator
from energy_callbacks.tuning.bench import Bench
from tests.tuning.simulated import Training

GIB = 2**30


class Cuda:
    """``torch.cuda`` with cards of 80 GiB; the process has a context on the first two of three."""

    __name__ = "torch.cuda"

    def __init__(self, *, is_awake: bool = True) -> None:
        self.is_awake = is_awake
        self.calls: list[Any] = []

    def is_initialized(self) -> bool:
        return self.is_awake

    def device_count(self) -> int:
        return 3

    def empty_cache(self) -> None:
        self.calls.append(("empty",))

    def synchronize(self, index: int) -> None:
        self.calls.append(("synchronize", index))

    def reset_peak_memory_stats(self, index: int) -> None:
        self.calls.append(("reset", index))

    def mem_get_info(self, index: int) -> tuple[int, int]:
        self.calls.append(("info", index))
        return (80 - 30) * GIB, 80 * GIB

    def memory_reserved(self, index: int) -> int:
        return 20 * GIB

    def max_memory_reserved(self, index: int) -> int:
        return (25 + index) * GIB


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """Replace ``torch``."""
    fake = Cuda()
    torch = SimpleNamespace(
        cuda=fake,
        backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: False)),
        _C=SimpleNamespace(_cuda_hasPrimaryContext=lambda index: index < 2),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)  # of the real one
    return fake


def test_memory_is_that_of_the_fullest_card_with_what_others_hold(cuda: Cuda) -> None:
    """30 GiB are used, 20 of them by us and at most 26: 36 GiB, on the second card."""
    found = accelerator.memory()
    assert found == accelerator.DeviceMemory(36 * GIB, 80 * GIB)
    assert found.share == 0.45
    assert ("info", 2) not in cuda.calls


def test_only_devices_in_use_are_touched(cuda: Cuda) -> None:
    """No context is created on a card that the training does not use."""
    accelerator.reset_peak()
    accelerator.synchronise()
    resets = [("empty",), ("reset", 0), ("reset", 1)]
    assert cuda.calls == [*resets, ("synchronize", 0), ("synchronize", 1)]


class Caching(Cuda):
    """An allocator that keeps its memory until its cache is emptied."""

    def __init__(self) -> None:
        super().__init__()
        self.reserved = self.peak = 0

    def step(self, size: int) -> None:
        """Use one GiB per sample."""
        self.reserved = max(self.reserved, size * GIB)
        self.peak = max(self.peak, self.reserved)

    def empty_cache(self) -> None:
        self.reserved = 0

    def reset_peak_memory_stats(self, index: int) -> None:
        self.peak = self.reserved

    def mem_get_info(self, index: int) -> tuple[int, int]:
        return 80 * GIB - self.reserved, 80 * GIB

    def memory_reserved(self, index: int) -> int:
        return self.reserved

    def max_memory_reserved(self, index: int) -> int:
        return self.peak


def test_a_peak_is_that_of_its_own_size(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Memory that the allocator has kept from a larger size does not count."""
    caching = Caching()
    monkeypatch.setattr(sys.modules["torch"], "cuda", caching)
    training = Training(tmp_path)

    def step(size: int) -> None:
        caching.step(size)
        training.step(size)

    with training.meter:
        bench = Bench(step, training.meter)
        assert [bench.run(size).peak_bytes for size in (8, 64, 16)] == [8 * GIB, 64 * GIB, 16 * GIB]


def test_a_peak_that_cannot_be_reset_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On JAX the peak of a small size after a large one is unknown."""
    stats = {"peak_bytes_in_use": 30 * GIB, "bytes_limit": 60 * GIB}
    device = SimpleNamespace(id=0, memory_stats=lambda: stats)
    jax = SimpleNamespace(local_devices=lambda: [device], block_until_ready=lambda result: None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(accelerator, "awake_jax", lambda: jax)
    monkeypatch.setattr(accelerator, "_jax_peaks", {})
    assert accelerator.memory() == accelerator.DeviceMemory(30 * GIB, 60 * GIB)
    accelerator.reset_peak()
    assert accelerator.memory() == accelerator.DeviceMemory(None, 60 * GIB)
    stats["peak_bytes_in_use"] = 40 * GIB
    assert accelerator.memory() == accelerator.DeviceMemory(40 * GIB, 60 * GIB)


def test_cuda_is_not_woken(cuda: Cuda) -> None:
    """Before the training uses a card, memory is that of the process."""
    cuda.is_awake = False
    accelerator.reset_peak()
    accelerator.synchronise()
    assert cuda.calls == []
    found = accelerator.memory()
    assert found is None or found.size_bytes != 80 * GIB


def test_tensorflow_that_has_used_no_device_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any call would make it allocate all memory of all cards."""
    eager = SimpleNamespace(context_safe=lambda: SimpleNamespace(_context_handle=None))
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", eager)
    accelerator.reset_peak()
    accelerator.synchronise()
    accelerator.memory()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the peak of a process")
def test_a_peak_of_host_memory_is_seen_and_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a gibibyte is allocated for a moment."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    accelerator.reset_peak()
    before = accelerator.memory()
    block = bytearray(GIB // 2)
    block[::4096] = b"x" * len(block[::4096])
    del block
    high = accelerator.memory()
    accelerator.reset_peak()
    after = accelerator.memory()
    assert before is not None
    assert high is not None
    assert after is not None
    assert high.peak_bytes - before.peak_bytes == pytest.approx(GIB / 2, rel=0.1)
    assert after.peak_bytes < high.peak_bytes - GIB / 4
    assert high.size_bytes > GIB
