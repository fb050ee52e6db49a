"""Runs batches of a network as CUDA graphs, which the host launches as a whole.

Without a graph, the host launches each kernel. Small batches then wait for the host: ResNet-50 with
one image takes 4.3 ms instead of 0.9 ms on an H200 (docs/inference.md), and as long as the host is
slowed down by other programs, longer.
"""

from collections.abc import Callable
from typing import Any, Final

import torch

# Batches before a capture, in which libraries choose algorithms and allocate what they need. Three
# are the number in PyTorch's documentation of CUDA graphs.
_WARMUP: Final = 3
_WITHOUT: Final = "runs without CUDA graphs: "


class GraphedStep:
    """Runs a batch and waits for its end; a function of the number of samples.

    A number of samples gets its graph when it is run for the first time. A network that cannot be
    captured, because its host code depends on results, is run without a graph.

    Args:
        network: the network, on a GPU.
        inputs: the largest batch, on the same GPU.
        cause: why there is to be no graph; empty if there is to be one.

    Attributes:
        note: why there is no graph; empty if there is one.
    """

    def __init__(self, network: torch.nn.Module, inputs: torch.Tensor, cause: str = "") -> None:
        self._network, self._inputs = network, inputs
        self._steps: dict[int, Callable[[], object]] = {}
        # One pool for all graphs: they never run at the same time, and nobody reads their outputs.
        self._pool = torch.cuda.graph_pool_handle()
        self.note = _WITHOUT + cause if cause else ""

    def __call__(self, samples: int) -> None:
        """Run the first samples of the batch."""
        if samples not in self._steps:
            self._steps[samples] = self._made(samples)
        self._steps[samples]()
        torch.cuda.synchronize()

    def _made(self, samples: int) -> Callable[[], object]:
        part = self._inputs[:samples]

        @torch.inference_mode()
        def run() -> object:
            return self._network(part)

        if self.note:
            return run
        try:
            return _captured(run, self._pool)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.note = _WITHOUT + _cause(error)
            return run


def _cause(error: BaseException) -> str:
    """Return the first line of the first error; PyTorch raises another when a capture ends."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error).partition("\n")[0]


def _captured(run: Callable[[], object], pool: Any) -> Callable[[], object]:
    """Return a function that replays what ``run`` launches."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARMUP):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        run()
    return graph.replay
