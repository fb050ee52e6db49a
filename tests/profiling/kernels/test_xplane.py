"""Tests of xprof's table of kernels for traces of TensorFlow and JAX."""

from pathlib import Path

import pytest

from energy_callbacks.profiling.kernels import xplane
from energy_callbacks.profiling.kernels.tally import split
from energy_callbacks.profiling.kernels.xplane import devices, of_table
from tests.profiling.kernels.cuda_trace import ADD, GEMM

COLUMNS = ("rank", "kernel_name", "op_name", "occurrences", "total_duration_us")


def table(*rows: tuple[str, int, float]) -> dict:
    """Returns ``kernel_stats`` in the format of Google Charts."""
    return {
        "cols": [{"id": name, "label": name} for name in COLUMNS],
        "rows": [
            {"c": [{"v": i}, {"v": name}, {"v": "op"}, {"v": calls}, {"v": time_us}]}
            for i, (name, calls, time_us) in enumerate(rows)
        ],
    }


def test_kernels_of_a_table() -> None:
    """Times and calls are summed by name; the causes of idle time are unknown."""
    found = of_table(
        table((GEMM, 3, 3000.0), (ADD, 6, 600.0), (GEMM, 3, 300.0)), steps=3, devices=1
    )
    assert found is not None
    assert found.time_s[GEMM] == pytest.approx(0.0033)
    assert found.time_s[ADD] == pytest.approx(0.0006)
    assert found.calls == {GEMM: 6, ADD: 6}
    assert (found.steps, found.frame_s, found.idle_s) == (3, 0.0, {})


def test_a_trace_without_a_device() -> None:
    """An empty table gives no sums."""
    assert of_table(table(), steps=3, devices=1) is None


@pytest.mark.parametrize(("planes", "count"), [((0,), 1), ((0, 1, 0, 11), 3), ((), 1)])
def test_devices_of_a_trace(tmp_path: Path, planes: tuple[int, ...], count: int) -> None:
    """Each plane counts once; a trace without planes has one device."""
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(b"".join(b"\x08\x01\x12/device:GPU:%d\x1a\xff" % one for one in planes))
    assert devices(path) == count


def test_two_devices_have_twice_the_time() -> None:
    """4 ms of kernels in a step of 4 ms on two cards are half of the time of both."""
    found = of_table(table((GEMM, 2, 4000.0)), steps=1, devices=2)
    assert found is not None
    gemm, idle = split(found, step_s=0.004, j_per_step=8.0).rows
    assert (gemm.share, idle.share) == pytest.approx((0.5, 0.5))
    assert gemm.energy_j == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("program", "limit_s", "error"),
    [
        ("raise SystemExit('no such tool')", 60.0, "xprof failed: no such tool"),
        ("while True: pass", 0.01, "xprof took longer than"),
    ],
)
def test_xprof_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, limit_s: float, error: str
) -> None:
    """The error states what xprof did, so that the report does not ask to install it."""
    monkeypatch.setattr(xplane, "find_spec", lambda _: True)
    monkeypatch.setattr(xplane, "_ASK", program)
    monkeypatch.setattr(xplane, "_PATIENCE_S", limit_s)
    with pytest.raises(ValueError, match=error):
        xplane.kernels(tmp_path / "a.xplane.pb", 3)
