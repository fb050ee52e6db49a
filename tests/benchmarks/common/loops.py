"""Two training loops to measure in: one bound by the GPU, one by launching kernels.

Without a GPU a sleep and a calculation in Python replace them. These show that the benchmark works
and what our threads take from the interpreter, but nothing about a GPU.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

GPU_BOUND_S, LAUNCH_BOUND_S = 28e-3, 1.6e-3
SLEEP: Final = "sleep (no GPU)"
# Products in fp32, 2.7 ms each on an H200: below the card's limit of 700 W. In bf16 they reach it,
# the clock follows the temperature, and rounds of half a second vary by 0.6 % instead of 0.01 %.
_MATRIX: Final = 4096
_FEW_LAYERS, _MORE_LAYERS = 10, 20
_WIDTH, _BATCH = 64, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A step, and how to wait until all steps are done.

    Attributes:
        name: name in tables.
        step: one training step.
        wait: returns when everything that was launched is done.
        step_s: approximate duration of a step.
    """

    name: str
    step: Callable[[], None]
    wait: Callable[[], None]
    step_s: float

    def seconds(self, steps: int, step: Callable[[], None] | None = None) -> float:
        """Return the mean seconds of a step; ``step`` replaces that of the loop."""
        return self.timed(steps, step)[0] / steps

    def timed(
        self,
        steps: int,
        step: Callable[[], None] | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> tuple[float, int]:
        """Return the seconds of some steps, and their number if ``is_over`` ended them early."""
        do = step or self.step
        done = 0
        self.wait()
        start_s = time.perf_counter()
        while done < steps and not is_over():
            do()
            done += 1
        self.wait()
        return time.perf_counter() - start_s, done


def has_gpu() -> bool:
    """Whether PyTorch has a CUDA device."""
    import torch

    return torch.cuda.is_available()


def gpu_loops() -> tuple[Loop, Loop]:
    """Return the loops on the current CUDA device, with sizes that take about the wanted times."""
    import torch

    wait = torch.cuda.synchronize
    one_s = _timed("", _matmuls(1), wait).step_s
    gpu_bound = _matmuls(max(round(GPU_BOUND_S / one_s), 1))
    few_s, more_s = (
        _timed("", _small_training(layers), wait).step_s for layers in (_FEW_LAYERS, _MORE_LAYERS)
    )
    layer_s = max((more_s - few_s) / (_MORE_LAYERS - _FEW_LAYERS), 1e-6)
    more_layers = max(round((LAUNCH_BOUND_S - few_s) / layer_s), 0)
    launch_bound = _small_training(_FEW_LAYERS + more_layers)
    return _timed("GPU-bound step", gpu_bound, wait), _timed("launch-bound", launch_bound, wait)


def fake_loops() -> tuple[Loop, Loop]:
    """Return the loops without a GPU."""

    def wait() -> None:
        """Return at once, as nothing is launched."""

    counts = 10_000
    count_s = _timed("", lambda: _count(counts), wait).step_s / counts
    busy = round(LAUNCH_BOUND_S / count_s)
    return (
        _timed(SLEEP, lambda: time.sleep(GPU_BOUND_S), wait),
        _timed("Python (no GPU)", lambda: _count(busy), wait),
    )


def _timed(name: str, step: Callable[[], None], wait: Callable[[], None]) -> Loop:
    loop = Loop(name=name, step=step, wait=wait, step_s=0.0)
    loop.seconds(5)
    step_s = min(loop.seconds(20) for _ in range(3))
    return Loop(name=name, step=step, wait=wait, step_s=step_s)


def _matmuls(count: int) -> Callable[[], None]:
    """Return a step of products, each large enough to fill the card."""
    import torch

    left, right, product = (torch.randn(_MATRIX, _MATRIX, device="cuda") for _ in range(3))

    def step() -> None:
        for _ in range(count):
            torch.mm(left, right, out=product)

    return step


def _small_training(layers: int) -> Callable[[], None]:
    """Return forward, backward and SGD of tiny layers: the GPU waits for the host."""
    import torch

    parts: list[Any] = []
    for _ in range(layers):
        parts += [torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU()]
    model = torch.nn.Sequential(*parts).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(_BATCH, _WIDTH, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        # On this thread: handing it to another takes varying times on a virtual machine, and
        # rounds of half a second then vary by 8 %.
        with torch.autograd.set_multithreading_enabled(False):
            loss.backward()
        optimizer.step()

    return step


def _count(until: int) -> None:
    for _ in range(until):
        pass
