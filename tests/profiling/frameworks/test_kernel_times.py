"""Tests of the time of kernels by the lines that launched them."""

import pytest

from energy_callbacks.profiling.common.line_tracker import LineTracker
from energy_callbacks.profiling.common.source_location import Line
from energy_callbacks.profiling.frameworks.torch_kernels import kernel_times
from tests.profiling.lines.traces import BASE_NS, launch, trace

FORWARD, BACKWARD, ITEM = (Line("/x/train.py", number, "step") for number in (3, 4, 5))


def followed():
    """Lines: forward for 1 ms, backward for 1 ms, then a line that waits for 7 ms."""
    found = LineTracker()
    for us, line in ((0, FORWARD), (1000, BACKWARD), (2000, ITEM), (9000, None)):
        found.add(BASE_NS + us * 1000, line)
    return found


def test_a_kernel_belongs_to_the_line_that_launched_it_whenever_it_runs():
    """Kernels run while ITEM waits; kernels of the autograd thread belong to BACKWARD."""
    events = [
        *launch(1, at_us=500, runs_us=(600, 2600)),
        *launch(2, at_us=1500, runs_us=(2600, 6600), thread=99, by="cuda_driver"),
        *launch(3, at_us=9500, runs_us=(9600, 9700)),
    ]
    found, busy_s = kernel_times(trace(events), followed().at)
    assert found == pytest.approx({FORWARD: 0.002, BACKWARD: 0.004, None: 0.0001})
    assert ITEM not in found
    assert busy_s == pytest.approx(0.0061)


def test_kernels_side_by_side_keep_the_device_busy_once():
    """Overlapping streams count once; copies count as kernels; devices are summed."""
    events = [
        *launch(1, at_us=1, runs_us=(10, 30)),
        *launch(2, at_us=2, runs_us=(20, 40), stream=8, kind="gpu_memcpy"),
        *launch(3, at_us=3, runs_us=(20, 40), device=1),
    ]
    found, busy_s = kernel_times(trace(events), followed().at)
    assert found == pytest.approx({FORWARD: 60e-6})
    assert busy_s == pytest.approx(50e-6)


def test_a_kernel_without_its_launch_is_nobodys():
    """A kernel that was launched before the window has no line."""
    (_, kernel) = launch(1, at_us=500, runs_us=(600, 700))
    found, _ = kernel_times(trace([kernel]), followed().at)
    assert found == pytest.approx({None: 1e-4})
