"""Tests of when windows of PyTorch's profiler open and close."""

import sys
import threading
import time

import pytest

torch = pytest.importorskip("torch")

from energy_callbacks.profiling.frameworks import torch_kernels  # noqa: E402
from energy_callbacks.profiling.frameworks.torch_kernels import KernelWindows  # noqa: E402
from energy_callbacks.profiling.frameworks.torch_profiler import RUNNING  # noqa: E402

pytestmark = pytest.mark.usefixtures("untraced")


@pytest.fixture
def on_the_cpu(monkeypatch):
    """Records operators of the CPU in place of kernels of a GPU."""
    activity = torch.profiler.ProfilerActivity.CPU
    monkeypatch.setattr(torch_kernels, "_activities", lambda: [activity])
    monkeypatch.setattr(torch_kernels, "is_used", lambda: True)


def train(found, steps, pause_s=0.0):
    """Run steps with a small matrix product."""
    x = torch.ones(8, 8)
    for _ in range(steps):
        x = x @ x / 8.0
        time.sleep(pause_s)
        found.step(is_training=True)


def test_two_windows_of_two_steps(on_the_cpu):
    """Two windows open and end, release the profiler and stop tracing; no third one opens."""
    found = KernelWindows(2, 2, 0.99)
    while len(found._done) < 2 and found.seen_steps < 3000:
        train(found, 20, pause_s=0.02)
    trained = found.seen_steps
    train(found, 20, pause_s=0.02)
    count, kernel_s, busy_s = found.result()
    assert (count, kernel_s, busy_s) == (2, {}, 0.0), "a processor launches no kernels"
    assert sys.gettrace() is None
    assert not RUNNING.locked()
    assert found.seen_steps == trained + 20


def test_the_next_window_waits_until_the_first_is_paid_for(on_the_cpu):
    """With an overhead of 1e-5, a training of a second has one window."""
    found = KernelWindows(2, 2, 1e-5)
    train(found, 100)
    assert found.cost_s > 0.0
    assert found.result()[0] == 1


def test_a_training_that_ends_in_a_window_gives_all_back(on_the_cpu):
    """An unfinished window is discarded."""
    for steps in (10, 11, 12):
        found = KernelWindows(2, 2, 0.5)
        train(found, steps)
        found.close()
        assert found.result()[0] == 0
        assert sys.gettrace() is None
        assert not RUNNING.locked()


def test_a_window_that_another_thread_ends_is_over_on_its_own(on_the_cpu):
    """If another thread ends a window, PyTorch's profiler stops on the training thread."""
    for steps in (10, 11, 12):
        found = KernelWindows(2, 2, 0.5)
        train(found, steps)
        other = threading.Thread(target=found.close)
        other.start()
        other.join()
        time.sleep(0.01)
        assert not torch.autograd._profiler_enabled()
        assert sys.gettrace() is None
        assert not RUNNING.locked()


def test_the_users_own_profiler_is_left_alone(on_the_cpu):
    """While the user's profiler runs, no window opens, and it is not affected."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        found = KernelWindows(2, 2, 0.5)
        train(found, 30)
    assert found.result()[0] == 0
    assert any("mm" in event.key for event in own.key_averages())


def test_a_profiler_that_is_over_and_waits_to_be_collected_is_not_in_the_way(on_the_cpu):
    """Finished profilers of PyTorch remain in reference cycles for a while."""
    own = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with own:
        torch.ones(3) + 1
    own.cycle = own
    del own
    found = KernelWindows(1, 2, 0.5)
    train(found, 30)
    assert found.result()[0] == 1


def test_another_of_our_profilers_has_the_window(on_the_cpu):
    """Kernels and lines are never recorded at the same time."""
    assert RUNNING.acquire(blocking=False)
    found = KernelWindows(1, 2, 0.5)
    train(found, 12)
    assert found.result()[0] == 0
    RUNNING.release()


def test_no_gpu_no_window():
    """Without a GPU no window opens."""
    found = KernelWindows(2, 2, 0.5)
    train(found, 30)
    assert found.result() == (0, {}, 0.0)


def test_a_trace_that_is_too_large_is_thrown_away(on_the_cpu, monkeypatch):
    """A trace above the limit is discarded."""
    monkeypatch.setattr(torch_kernels, "MOST_BYTES", 10)
    found = KernelWindows(1, 2, 0.5)
    train(found, 30)
    assert found.result()[0] == 0


def test_a_trace_that_is_no_json_is_left_out(on_the_cpu, caplog):
    """A quote in the name of a ``record_function`` makes PyTorch 2.13 write invalid JSON."""
    found = KernelWindows(1, 2, 0.5)
    train(found, 13)
    [window] = found._done
    window._trace = '{"traceEvents": [{"name": "a"b"}]}'
    assert found.result() == (0, {}, 0.0)
    assert "not attributed to lines" in caplog.text
