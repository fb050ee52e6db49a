"""Tests of the sums of traces, whose shares, gaps and overlaps have closed forms."""

from typing import Any

import numpy as np
import pytest

from energy_callbacks.profiling.frameworks.kineto import Trace
from energy_callbacks.profiling.kernels.classes import class_of
from energy_callbacks.profiling.kernels.tally import KernelTally, split, tally
from tests.profiling.kernels.cuda_trace import (
    ADD,
    BASE_NS,
    GEMM,
    MAIN,
    PERIOD_US,
    UPLOAD,
    ZERO_US,
    Work,
    trace,
)

MS = 1e-3


def of(*work: Work, **given: Any) -> KernelTally:
    """Returns the sums of a window of three steps of 10 ms, of which two are whole."""
    return tally(Trace(trace(work, **given)))


def each(found: KernelTally, sums: dict[str, float]) -> dict[str, float]:
    """Returns sums in milliseconds per step, without zeros."""
    return {name: time_s / found.steps / MS for name, time_s in sums.items() if time_s > 1e-9}


def test_whole_steps_are_counted() -> None:
    """Three recorded steps give two periods from first work to first work."""
    found = of(Work(name=GEMM, asked_us=100.0, start_us=200.0, duration_us=4000.0))
    assert found.steps == 2
    assert found.frame_s == pytest.approx(2 * PERIOD_US * 1e-6)
    assert each(found, found.time_s) == {GEMM: pytest.approx(4.0)}
    assert found.calls[GEMM] == 2


def test_a_device_that_lags_behind_its_host_counts_the_same() -> None:
    """Kernels that run three steps after their launch count the same."""
    found = of(Work(name=GEMM, asked_us=100.0, start_us=30_200.0, duration_us=9_999.0))
    assert found.steps == 2
    assert each(found, found.time_s) == {GEMM: pytest.approx(9.999)}
    assert each(found, found.idle_s) == {"device": pytest.approx(0.001, rel=1e-3)}


def test_parts_of_the_step() -> None:
    """Kernels belong to the part of the step that launched them."""
    found = of(
        Work(name=GEMM, asked_us=0.0, start_us=100.0, duration_us=1000.0),
        Work(name=GEMM, asked_us=200.0, start_us=1100.0, duration_us=2000.0, part="backward"),
        Work(name=ADD, asked_us=400.0, start_us=3100.0, duration_us=3000.0, part="optimizer"),
    )
    expected = {"forward": 1.0, "backward": 2.0, "optimizer": 3.0}
    assert each(found, found.parts_s) == {k: pytest.approx(v) for k, v in expected.items()}


def test_a_closure_that_the_optimizer_calls_is_not_the_optimizer() -> None:
    """Lightning's optimizer step contains forward and backward pass, which are not its own time."""
    document = trace(
        [
            Work(name=GEMM, asked_us=100.0, start_us=200.0, duration_us=1000.0),
            Work(name=GEMM, asked_us=300.0, start_us=1200.0, duration_us=2000.0, part="backward"),
            Work(name=ADD, asked_us=500.0, start_us=3200.0, duration_us=3000.0),
        ]
    )
    for step in range(3):
        line = {"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#Adam.step"}
        start_us = ZERO_US + step * PERIOD_US + 50.0
        line |= {"pid": MAIN, "tid": MAIN, "ts": start_us, "dur": 600.0}
        document["traceEvents"].append(line)
    found = tally(Trace(document))
    expected = {"forward": 1.0, "backward": 2.0, "optimizer": 3.0}
    assert each(found, found.parts_s) == {k: pytest.approx(v) for k, v in expected.items()}


def test_what_runs_at_once_shares_its_time() -> None:
    """Kernels that run at the same time share it, so that times add up to the busy time."""
    found = of(
        Work(name=GEMM, asked_us=0.0, start_us=100.0, duration_us=4000.0),
        Work(name=ADD, asked_us=10.0, start_us=2100.0, duration_us=2000.0, stream=13),
    )
    assert each(found, found.time_s) == {GEMM: pytest.approx(3.0), ADD: pytest.approx(1.0)}
    assert found.busy_s / found.steps == pytest.approx(4.0 * MS)


def test_idle_while_a_batch_is_fetched() -> None:
    """Idle time while the loader fetches a batch has the cause ``input``."""
    found = of(
        Work(name=GEMM, asked_us=3_000.0, start_us=3_000.0, duration_us=7_000.0),
        data=(0.0, 3_000.0),
    )
    assert each(found, found.idle_s) == {"input": pytest.approx(3.0)}


def test_idle_while_the_host_launches() -> None:
    """Idle time while the host runs operators has the cause ``launch``."""
    work = [
        Work(name=ADD, asked_us=2_000.0 * i + 10.0, start_us=2_000.0 * i + 20.0, duration_us=1e3)
        for i in range(5)
    ]
    found = of(*work, busy_host=[(0.0, 10_000.0)])
    assert each(found, found.idle_s) == {"launch": pytest.approx(5.0)}


def test_idle_while_the_host_does_something_else() -> None:
    """Idle time without an operator for more than 100 us has the cause ``host``."""
    found = of(Work(name=GEMM, asked_us=10.0, start_us=20.0, duration_us=6_000.0))
    assert each(found, found.idle_s)["host"] == pytest.approx(4.0, abs=0.02)


def test_idle_with_work_in_the_queue() -> None:
    """Idle time before a kernel that was launched already has the cause ``device``."""
    found = of(
        Work(name=GEMM, asked_us=0.0, start_us=10.0, duration_us=4_000.0),
        Work(name=GEMM, asked_us=20.0, start_us=6_010.0, duration_us=4_000.0),
    )
    assert each(found, found.idle_s) == {"device": pytest.approx(2.0)}


def test_waits_that_the_loop_told_are_input_too() -> None:
    """Waits that the training loop reports have the cause ``input``."""
    work = Work(name=GEMM, asked_us=3_000.0, start_us=3_000.0, duration_us=7_000.0)
    known = Trace(trace([work]))
    at_s = BASE_NS / 1e9 + ZERO_US / 1e6
    waits = [(at_s + 0.01 * i, at_s + 0.01 * i + 0.003) for i in range(3)]
    found = tally(known, np.array([[known.us(a), known.us(b)] for a, b in waits]))
    assert each(found, found.idle_s)["input"] == pytest.approx(3.0, abs=0.001)


def test_copies_and_what_kernels_hide_of_them() -> None:
    """Of 4 ms of copies, 1 ms overlaps with a kernel; copies on the device do not count."""
    found = of(
        Work(name=GEMM, asked_us=0.0, start_us=100.0, duration_us=2_000.0),
        Work(
            name=UPLOAD,
            asked_us=10.0,
            start_us=1_100.0,
            duration_us=4_000.0,
            category="gpu_memcpy",
            stream=9,
        ),
        Work(
            name="Memcpy DtoD (Device -> Device)",
            asked_us=20.0,
            start_us=7_000.0,
            duration_us=500.0,
            category="gpu_memcpy",
        ),
    )
    assert found.copy_s / found.steps == pytest.approx(4.0 * MS)
    assert found.hidden_copy_s / found.copy_s == pytest.approx(0.25)


def test_cudnn_by_name_and_by_operator() -> None:
    """Kernels of cuDNN are recognised by their name or by the operator that launched them."""
    own = "cudnn::ops::nchwToNhwcKernel<__half>"
    fprop = "sm90_xmma_fprop_implicit_gemm_bf16"
    found = of(
        Work(name=own, asked_us=0.0, start_us=100.0, duration_us=1_000.0),
        Work(
            name=fprop,
            asked_us=20.0,
            start_us=1_100.0,
            duration_us=2_000.0,
            operator="aten::cudnn_convolution",
        ),
        Work(name=GEMM, asked_us=40.0, start_us=3_100.0, duration_us=3_000.0),
    )
    assert found.cudnn_s / found.steps == pytest.approx(3.0 * MS)


def test_two_devices_of_one_process() -> None:
    """Each device has its own frame; times of both are added."""
    found = of(
        Work(name=GEMM, asked_us=0.0, start_us=100.0, duration_us=4_000.0, device=0),
        Work(name=GEMM, asked_us=10.0, start_us=110.0, duration_us=6_000.0, device=1),
    )
    assert (found.devices, found.steps) == (2, 2)
    assert found.frame_s / found.steps == pytest.approx(20.0 * MS)
    assert found.busy_s / found.steps == pytest.approx(10.0 * MS)


def test_without_an_accelerator_operators_take_the_place_of_kernels() -> None:
    """Operators count without those inside them; all steps count, and the rest is host time."""
    lines: list[dict[str, Any]] = []
    for step in range(3):
        zero_us = ZERO_US + 1_000.0 * step
        for category, name, start_us, duration_us in (
            ("user_annotation", f"ProfilerStep#{step}", 0.0, 1_000.0),
            ("cpu_op", "aten::linear", 100.0, 400.0),
            ("cpu_op", "aten::addmm", 200.0, 250.0),
            ("cpu_op", "aten::relu", 600.0, 100.0),
        ):
            line = {"ph": "X", "cat": category, "name": name, "pid": MAIN, "tid": MAIN}
            lines.append(line | {"ts": zero_us + start_us, "dur": duration_us})
    found = tally(Trace({"baseTimeNanoseconds": BASE_NS, "traceEvents": lines}))
    assert not found.has_device
    assert found.steps == 3
    expected = {"aten::linear": 0.15, "aten::addmm": 0.25, "aten::relu": 0.1}
    assert each(found, found.time_s) == {k: pytest.approx(v) for k, v in expected.items()}
    assert found.calls == {"aten::linear": 3, "aten::addmm": 3, "aten::relu": 3}
    assert each(found, found.idle_s) == {"host": pytest.approx(0.5)}


def test_windows_add_up() -> None:
    """The sums of two windows with different kernels are added."""
    found = KernelTally()
    for name in (GEMM, ADD):
        found.add(of(Work(name=name, asked_us=100.0, start_us=200.0, duration_us=4_000.0)))
    assert found.steps == 4
    assert each(found, found.time_s) == {GEMM: pytest.approx(2.0), ADD: pytest.approx(2.0)}


def test_a_window_without_whole_steps_counts_nothing() -> None:
    """One recorded step gives no whole period."""
    assert of(Work(name=GEMM, asked_us=1.0, start_us=2.0, duration_us=3.0), steps=1).steps == 0
    assert tally(Trace({"traceEvents": []})).steps == 0


def test_steps_whose_work_starts_in_reverse_order_count_nothing() -> None:
    """If a stream is far behind another one, there is no time from the first to the last step."""
    document = trace([Work(name=GEMM, asked_us=1.0, start_us=2.0, duration_us=3.0)], steps=2)
    kernels = [line for line in document["traceEvents"] if line.get("cat") == "kernel"]
    kernels[0]["ts"] += 50_000.0
    found = tally(Trace(document))
    assert (found.steps, found.frame_s, found.busy_s) == (0, 0.0, 0.0)


@pytest.mark.parametrize("step_s", [None, 0.012, 0.008, 0.001])
def test_joules_add_up_to_what_was_measured(step_s: float | None) -> None:
    """Rows add up to 5 J and shares to one, whatever a step takes outside of windows."""
    found = of(
        Work(name=GEMM, asked_us=0.0, start_us=100.0, duration_us=4_000.0),
        Work(name=ADD, asked_us=10.0, start_us=4_100.0, duration_us=2_000.0),
    )
    parts = split(found, step_s, 5.0)
    assert sum(row.energy_j or 0.0 for row in parts.rows) == pytest.approx(5.0)
    assert sum(row.share for row in parts.rows) == pytest.approx(1.0)
    busy_s = 0.006
    whole_s = max(step_s or 0.010, busy_s)
    assert parts.busy_share == pytest.approx(busy_s / whole_s)
    shares = {row.name: row.energy_j for row in parts.rows}
    assert shares[GEMM] == pytest.approx(5.0 * 0.004 / whole_s)
    assert shares["idle"] == pytest.approx(5.0 * (whole_s - busy_s) / whole_s, abs=1e-12)


def test_without_a_sensor_joules_are_unknown() -> None:
    """Without a sensor, the energy of all rows is unknown."""
    found = of(Work(name=GEMM, asked_us=0.0, start_us=100.0, duration_us=4_000.0))
    assert {row.energy_j for row in split(found, None, None).rows} == {None}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (GEMM, "matrix product"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "matrix product"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu>", "matrix product"),
        ("void gemv2T_kernel_val<int, int, float>", "matrix product"),
        ("sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32", "convolution"),
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float>", "convolution"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>", "attention"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", "attention"),
        ("void at::native::vectorized_layer_norm_kernel<float>", "normalisation"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", "normalisation"),
        (ADD, "elementwise and reduction"),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp>",
            "elementwise and reduction",
        ),
        ("triton_poi_fused_add_gelu_0", "elementwise and reduction"),
        ("void (anonymous namespace)::softmax_warp_forward<float>", "elementwise and reduction"),
        (UPLOAD, "copy"),
        ("Memset (Device)", "copy"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "communication"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<1>", "optimizer"),
        ("aten::convolution_backward", "convolution"),
        ("aten::addmm", "matrix product"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("my_own_kernel", "other"),
    ],
)
def test_classes(name: str, expected: str) -> None:
    """Kernels of the libraries and of PyTorch are classified by name."""
    assert class_of(name) == expected
