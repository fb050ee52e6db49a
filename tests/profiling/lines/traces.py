"""Traces of known kernels, in the format of Kineto for CUDA."""

from typing import Any

BASE_NS = 1_790_857_026_000_000_000


def launch(
    correlation,
    *,
    at_us,
    runs_us,
    device=0,
    stream=7,
    thread=1,
    kind="kernel",
    by="cuda_runtime",
):
    """Return the event of a launch and that of its kernel."""
    start_us, end_us = runs_us
    return (
        {
            "ph": "X", "cat": by, "name": "cudaLaunchKernel", "pid": 1, "tid": thread,
            "ts": float(at_us), "dur": 5.0, "args": {"correlation": correlation, "cbid": 211},
        },
        {
            "ph": "X", "cat": kind, "name": "sm90_xmma_gemm", "pid": device, "tid": stream,
            "ts": float(start_us), "dur": float(end_us - start_us),
            "args": {"correlation": correlation, "device": device, "stream": stream},
        },
    )  # fmt: skip


def trace(events) -> dict[str, Any]:
    """Return a trace with these and other events."""
    others = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "pid": 1, "tid": 1,
         "ts": 5.0, "dur": 2.0, "args": {"cbid": 131}},
        {"ph": "i", "cat": "cuda_runtime", "name": "x", "ts": 1.0, "args": {"correlation": 1}},
    ]  # fmt: skip
    return {"baseTimeNanoseconds": BASE_NS, "traceEvents": [*others, *events]}
