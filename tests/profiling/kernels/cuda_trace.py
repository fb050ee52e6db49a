"""Builds traces as Kineto writes them for a CUDA training, from work with known times.

No GPU is needed; the events have the fields that torch 2.13 writes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

HOST, MAIN, AUTOGRAD = 4242, 4242, 4243
BASE_NS = 1_790_857_026_000_000_000
ZERO_US = 4_521_353_184_000.0
PERIOD_US = 10_000.0
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_execute"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
UPLOAD = "Memcpy HtoD (Pinned -> Device)"


@dataclass(frozen=True, kw_only=True)
class Work:
    """A kernel or copy of each step; times are relative to the start of the step.

    Attributes:
        asked_us: time of the launch by the host.
        start_us: start on the device.
    """

    name: str
    asked_us: float
    start_us: float
    duration_us: float
    part: Literal["forward", "backward", "optimizer"] = "forward"
    category: str = "kernel"
    operator: str = "aten::something"
    device: int = 0
    stream: int = 7


def trace(
    work: Sequence[Work],
    *,
    steps: int = 3,
    data: tuple[float, float] | None = None,
    busy_host: Sequence[tuple[float, float]] = (),
    period_us: float = PERIOD_US,
) -> dict[str, Any]:
    """Returns the trace of a window.

    Args:
        work: work of each step.
        steps: number of recorded steps.
        data: start and end of fetching a batch in each step.
        busy_host: spans of each step in which an operator runs that launches nothing.
        period_us: time from step to step.
    """
    lines: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "ts": ZERO_US, "pid": HOST, "tid": 0, "args": {}}
    ]
    correlation = 100
    for step in range(steps):
        zero_us = ZERO_US + step * period_us
        lines.append(_host("user_annotation", f"ProfilerStep#{step + 2}", zero_us, period_us))
        if data is not None:
            name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
            lines.append(_host("user_annotation", name, zero_us + data[0], data[1] - data[0]))
        for start_us, end_us in busy_host:
            lines.append(_host("cpu_op", "aten::empty", zero_us + start_us, end_us - start_us))
        for one in work:
            correlation += 1
            lines += _lines(one, zero_us, correlation)
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": lines,
        "traceName": "trace.json",
    }


def _lines(one: Work, zero_us: float, correlation: int) -> list[dict[str, Any]]:
    asked_us, thread = zero_us + one.asked_us, AUTOGRAD if one.part == "backward" else MAIN
    ids = {"External id": correlation, "correlation": correlation}
    found = [_host("cpu_op", one.operator, asked_us - 1.0, 8.0, thread=thread)]
    if one.part == "backward":
        name = "autograd::engine::evaluate_function: AddmmBackward0"
        found.insert(0, _host("cpu_op", name, asked_us - 2.0, 10.0, thread=thread))
    if one.part == "optimizer":
        found.append(_host("user_annotation", "Optimizer.step#SGD.step", asked_us - 2.0, 10.0))
    found.append(_host("cuda_runtime", "cudaLaunchKernel", asked_us, 5.0, thread=thread, given=ids))
    given = {**ids, "device": one.device, "stream": one.stream, "context": 1}
    if one.category == "gpu_memcpy":
        given |= {"bytes": 1_000_000, "memory bandwidth (GB/s)": 10.0}
    found.append(
        {
            "ph": "X",
            "cat": one.category,
            "name": one.name,
            "pid": one.device,
            "tid": one.stream,
            "ts": zero_us + one.start_us,
            "dur": one.duration_us,
            "args": given,
        }
    )
    return found


def _host(
    category: str,
    name: str,
    start_us: float,
    duration_us: float,
    *,
    thread: int = MAIN,
    given: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": HOST,
        "tid": thread,
        "ts": start_us,
        "dur": duration_us,
        "args": given or {"External id": 1},
    }
