"""Two training loops to add a measurement to: one bound by the GPU, one by launching kernels.

Without a GPU their places are taken by a sleep and by a calculation in Python: these show that
the benchmark works, and what threads of ours take from the interpreter, but no GPU.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

GPU_BOUND_S, LAUNCH_BOUND_S = 28e-3, 1.6e-3
SLEEP: Final = "sleep (no GPU)"
_MATRIX: Final = 8192  # bf16: 1.4 ms on an H200 (788 TFLOP/s)
_WIDTH, _BATCH = 64, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A step, and how to wait until all steps are done.

    Attributes:
        name: for tables.
        step: one training step.
        wait: returns when everything that was launched is done.
        step_s: about how long a step takes.
    """

    name: str
    step: Callable[[], None]
    wait: Callable[[], None]
    step_s: float

    def seconds(self, steps: int, step: Callable[[], None] | None = None) -> float:
        """Seconds that a step takes: the mean over so many, of ``step`` in its own one's place."""
        do = step or self.step
        self.wait()
        start_s = time.perf_counter()
        for _ in range(steps):
            do()
        self.wait()
        return (time.perf_counter() - start_s) / steps


def gpu_loops() -> tuple[Loop, Loop]:
    """On the current CUDA device, with sizes that give about the wanted times there."""
    import torch

    wait = torch.cuda.synchronize
    one_s = _timed("", _matmuls(1), wait).step_s
    gpu_bound = _matmuls(max(round(GPU_BOUND_S / one_s), 1))
    ten_s = _timed("", _small_training(10), wait).step_s
    launch_bound = _small_training(max(round(10 * LAUNCH_BOUND_S / ten_s), 1))
    return _timed("GPU-bound step", gpu_bound, wait), _timed("launch-bound", launch_bound, wait)


def fake_loops() -> tuple[Loop, Loop]:
    """Without a GPU."""

    def wait() -> None:
        """Nothing is launched."""

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
    """So many large products in bf16."""
    import torch

    left, right, product = (
        torch.randn(_MATRIX, _MATRIX, device="cuda", dtype=torch.bfloat16) for _ in range(3)
    )

    def step() -> None:
        for _ in range(count):
            torch.mm(left, right, out=product)

    return step


def _small_training(layers: int) -> Callable[[], None]:
    """Forward, backward and SGD of so many tiny layers: the GPU waits for the host."""
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
        # On this thread: to hand it to another takes ever other times on a virtual machine, and
        # rounds of half a second scatter by 8 %.
        with torch.autograd.set_multithreading_enabled(False):
            loss.backward()
        optimizer.step()

    return step


def _count(until: int) -> None:
    for _ in range(until):
        pass
