"""Matrix products as the load of a GPU."""

import time
from collections.abc import Callable


def products(size: int) -> Callable[[int], float]:
    """Return a function that runs n bf16 products of ``size`` x ``size``, and returns its time, s.

    The function waits until the GPU has finished.
    """
    import torch

    left = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    product = torch.empty_like(left)

    def work(count: int) -> float:
        start_s = time.perf_counter()
        for _ in range(count):
            torch.mm(left, left, out=product)
        torch.cuda.synchronize()
        return time.perf_counter() - start_s

    return work
