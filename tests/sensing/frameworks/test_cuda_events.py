"""CUDA events through a library with the driver's interface, each case in a process of its own."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from energy_callbacks.sensing.frameworks import cuda_events

SOURCE = Path(__file__).parent / "libcuda_events.c"
PROLOGUE = """
import ctypes, sys, threading, time, types
from energy_callbacks.sensing.frameworks import cuda_events
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.sensing.frameworks.work_ends import WorkEnds

def awake():
    library = ctypes.CDLL("libcuda.so.1")
    library.fakeLaunch.argtypes = (ctypes.c_double,)
    library.fakeEventAt.restype = ctypes.c_double
    library.cuInit(0)
    library.fakeUseContext()
    return library

streams = [0x7]

def torch(is_initialized=True):
    cuda = types.ModuleType("torch.cuda")
    cuda.is_initialized = lambda: is_initialized
    cuda.current_stream = lambda: types.SimpleNamespace(cuda_stream=streams[0])
    sys.modules["torch"] = types.ModuleType("torch")
    sys.modules["torch"]._C = types.SimpleNamespace()
    sys.modules["torch"].cuda = sys.modules["torch.cuda"] = cuda

def on_another_thread(job):
    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
"""

Run = Callable[[str], str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """``run(code)``: what the code prints in a process where libcuda.so.1 can be found."""
    folder = tmp_path_factory.mktemp("cuda")
    options = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so.1")]
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", *options, str(SOURCE)], check=True)

    def run_code(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", PROLOGUE + textwrap.dedent(code)],
            env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run_code


def test_ends_on_the_journals_thread(run: Run) -> None:
    """Steps of 50 ms queued at once are dated from another thread, within the stated bounds."""
    code = """
    library = awake()
    torch()
    ends = WorkEnds(SystemClock())
    truth = []
    for _ in range(5):
        library.fakeLaunch(0.05)
        truth.append((ends.mark(time.monotonic()), library.fakeEventAt()))
    time.sleep(0.3)
    on_another_thread(ends.settle)
    for end, at_s in truth:
        assert abs(end.end_s - at_s) <= end.error_s + 1e-6, (end, at_s)
        assert end.error_s < 20e-3
    ends.close()
    print(ends.host_marks, library.fakeAlive(), library.fakeDepth(), library.fakeMode())
    """

    assert run(code) == "0 0 0 0"


def test_a_capture_is_neither_recorded_nor_spoiled(run: Run) -> None:
    """During the capture of a graph no event is recorded, and queries are safe."""
    code = """
    library = awake()
    torch()
    ends = WorkEnds(SystemClock())
    before = ends.mark(time.monotonic())
    library.fakeCapture(1)
    during = ends.mark(time.monotonic())
    on_another_thread(ends.settle)
    print(before.error_s is None, during.error_s is None)
    print(library.fakeRecorded(), library.fakeSpoiled())
    """

    assert run(code).splitlines() == ["False True", "1 0"]


def test_a_stream_of_another_device_keeps_host_marks(run: Run) -> None:
    """If the driver refuses an event, the step keeps its host time."""
    code = """
    awake()
    torch()
    ends = WorkEnds(SystemClock())
    ends.mark(time.monotonic())
    streams[0] = 0x8
    print(ends.mark(time.monotonic()).end_s is not None, ends.host_marks)
    """

    assert run(code) == "True 1"


@pytest.mark.parametrize(
    "situation",
    [
        "pass",
        "torch(is_initialized=False)",
        "awake(); torch(is_initialized=False)",
        "torch()",
        "awake()",
    ],
)
def test_nothing_is_woken(run: Run, situation: str) -> None:
    """Without CUDA in PyTorch a step keeps its host time, and no library is loaded."""
    code = f"""
    {situation}
    is_loaded = lambda: "libcuda" in open("/proc/self/maps").read()
    before = is_loaded()
    ends = WorkEnds(SystemClock())
    end = ends.mark(5.0)
    ends.settle()
    ends.close()
    print(end.end_s, end.error_s, before == is_loaded())
    """

    assert run(code) == "5.0 None True"


def test_a_context_that_is_gone(run: Run) -> None:
    """If the context is destroyed, steps end when they were queued."""
    code = """
    awake()
    torch()
    ends = WorkEnds(SystemClock())
    end = ends.mark(5.0)
    ends._events._context = ctypes.c_void_p(1)
    on_another_thread(ends.settle)
    ends.close()
    print(end.end_s, ends.host_marks)
    """

    assert run(code) == "5.0 1"


def test_real_torch_without_a_device() -> None:
    """PyTorch on a machine without CUDA is not asked for a stream."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_initialized():
        pytest.skip("this process has initialised CUDA")
    assert cuda_events.open_events() is None
    assert not torch.cuda.is_initialized()


def test_the_quick_way_to_the_current_stream(run: Run) -> None:
    """If PyTorch returns raw handles, the one of its current device is used."""
    code = """
    library = awake()
    torch()
    torch_c = sys.modules["torch"]._C
    asked = []
    torch_c._cuda_getDevice = lambda: 1
    torch_c._cuda_getCurrentRawStream = lambda device: asked.append(device) or streams[0]
    torch_c._cuda_isCurrentStreamCapturing = lambda: bool(captured)
    captured = []
    del sys.modules["torch"].cuda.current_stream
    ends = WorkEnds(SystemClock())
    library.fakeLaunch(0.05)
    end = ends.mark(time.monotonic())
    time.sleep(0.1)
    ends.settle()
    print(asked, end.error_s is not None, library.fakeRecorded())
    captured.append(True)
    ends.mark(time.monotonic())
    print(ends.host_marks, library.fakeRecorded())
    """

    assert run(code).splitlines() == ["[1] True 1", "1 1"]


def test_an_error_of_an_earlier_launch_is_left_to_the_training(run: Run) -> None:
    """If PyTorch raises an error at the query, the step keeps its host time."""
    code = """
    awake()
    torch()

    def failed():
        raise RuntimeError("CUDA error: device-side assert triggered")

    sys.modules["torch"]._C._cuda_isCurrentStreamCapturing = failed
    ends = WorkEnds(SystemClock())
    end = ends.mark(time.monotonic())
    print(end.end_s == end.queued_s, ends.host_marks)
    """

    assert run(code) == "True 1"
