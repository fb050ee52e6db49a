"""CUDA graphs of tenants, on a stand-in for the CUDA functions of PyTorch.

``tests/gpu/inference_cap.py`` runs them on a GPU.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from energy_callbacks.inference.profile import steps
from energy_callbacks.inference.profile.graphs import GraphedStep


class Gpu:
    """What the network and the graphs did."""

    def __init__(self) -> None:
        self.is_capturing = False
        self.launched: list[int] = []  # samples of batches that the host launched
        self.replayed: list[int] = []  # samples of batches that graphs launched
        self.pools: list[object] = []

    def network(self, inputs: torch.Tensor) -> torch.Tensor:
        assert torch.is_inference_mode_enabled()
        self.launched.append(len(inputs))
        return inputs

    @contextmanager
    def graph(self, graph: "Graph", pool: object) -> Iterator[None]:
        self.pools.append(pool)
        self.is_capturing = True
        before = len(self.launched)
        try:
            yield
        finally:
            self.is_capturing = False
            if len(self.launched) == before:  # as PyTorch does after an error in the block
                raise RuntimeError("CUDA error: operation failed due to a previous error")
        (samples,) = self.launched[before:]
        graph.replay = lambda: self.replayed.append(samples)


class Graph:
    replay: Callable[[], None]


class Stream:
    def wait_stream(self, _: "Stream") -> None:
        pass


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Replace the functions of CUDA."""
    found = Gpu()
    replaced: dict[str, Any] = {
        "graph_pool_handle": lambda: (0, 1),
        "CUDAGraph": Graph,
        "graph": found.graph,
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda _: nullcontext(),
        "synchronize": lambda: None,
    }
    for name, value in replaced.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return found


def step_of(network: Any) -> GraphedStep:
    """Return a step with batches of up to eight samples."""
    return GraphedStep(network, torch.zeros(8, 1))


def test_a_number_of_samples_is_launched_by_the_host_until_it_has_a_graph(gpu: Gpu) -> None:
    """Three batches prepare a graph, and one is captured; all others are replayed."""
    step = step_of(gpu.network)
    for samples in (8, 8, 3, 8, 3):
        step(samples)
    assert gpu.replayed == [8, 8, 3, 8, 3]
    assert gpu.launched == [8] * 4 + [3] * 4  # to prepare three times, to capture once
    assert gpu.pools == [(0, 1)] * 2
    assert not step.note


def test_a_network_that_cannot_be_captured_runs_without_graphs(gpu: Gpu) -> None:
    """The cause is the note, and no other capture is tried."""

    def network(inputs: torch.Tensor) -> torch.Tensor:
        if gpu.is_capturing:
            raise RuntimeError("operation not permitted when stream is capturing\nSearch for ...")
        return gpu.network(inputs)

    step = step_of(network)
    for samples in (8, 8, 3):
        step(samples)
    assert not gpu.replayed
    assert gpu.launched == [8] * 5 + [3]
    assert len(gpu.pools) == 1  # it is not tried again
    assert step.note == (
        "runs without CUDA graphs: operation not permitted when stream is capturing"
    )


def test_an_eager_model_has_no_graph(gpu: Gpu) -> None:
    """The host launches its kernels, as the note says."""
    network = torch.nn.Identity()
    network.forward = gpu.network  # type: ignore[method-assign]
    inputs: Any = SimpleNamespace(
        device=SimpleNamespace(type="cuda"), half=lambda: torch.zeros(8, 1)
    )
    for name, graphs in (("eager:zoo:simple_cnn", 0), ("zoo:simple_cnn", 1)):
        steps.check_name(name)
        step = steps._inference(name, network, inputs)
        step(8)
        assert len(gpu.pools) == graphs
        note = "" if graphs else "runs without CUDA graphs: the model's name begins with eager:"
        assert vars(step)["note"] == note


def test_a_network_that_needs_too_much_memory_is_not_run_again(gpu: Gpu) -> None:
    """The tenant reports it as out of memory."""
    runs: list[int] = []

    def network(inputs: torch.Tensor) -> torch.Tensor:
        runs.append(len(inputs))
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        step_of(network)(8)
    assert runs == [8]
