"""A lack of memory is known by what each library says, and nothing else is taken for it.

For real ones of TensorFlow and JAX see ``tests/integrations/keras/test_out_of_memory.py``.
"""

import gc
import subprocess
import sys
import weakref
from types import SimpleNamespace

import pytest

from energy_callbacks.tuning.out_of_memory import free_memory, is_out_of_memory, said

torch = pytest.importorskip("torch")

TEXTS = [
    # PyTorch's caching allocators
    (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 "
        "GiB of which 1.21 GiB is free. Of the allocated memory 13.90 GiB is allocated by "
        "PyTorch"
    ),
    (
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; "
        "9.41 GiB already allocated; 10.31 MiB free; 9.58 GiB reserved in total by PyTorch)"
    ),
    (
        "HIP out of memory. Tried to allocate 432.00 MiB. GPU 0 has a total capacity of 15.92 "
        "GiB of which 7.12 GiB is free."
    ),
    "XPU out of memory. Tried to allocate 59.61 GiB. GPU 0 has a total capacity of 28.55 GiB.",
    "NPU out of memory. Tried to allocate 1.00 GiB (NPU 0; 29.50 GiB total capacity)",
    (
        "MPS backend out of memory (MPS allocated: 6.04 GB, other allocations: 1.04 GB, max "
        "allowed: 6.77 GB). Tried to allocate 459.07 MB on private pool."
    ),
    "Invalid buffer size: 20.12 GiB",
    "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::939524096 (896)MB",
    # runtimes and drivers
    (
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at "
        "some other API call, so the stacktrace below might be incorrect."
    ),
    "HIP error: out of memory\nHIP kernel errors might be asynchronously reported",
    "CUDA driver error: out of memory",
    "Triton Error [CUDA]: out of memory",
    "Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    "INTERNAL: Failed to load in-memory CUBIN: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    # libraries
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
    "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
    "cuFFT error: CUFFT_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    (
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a "
        "non-contiguous input."
    ),
    "Unable to find a valid cuDNN algorithm to run convolution",
    (
        "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled cuda error "
        "(run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5\nncclUnhandledCudaError: "
        "Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'"
    ),
    (
        "NCCL error in: NCCLUtils.cpp:94, unhandled cuda error, NCCL version "
        "2.26.2\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nFailed to "
        "CUDA calloc async 40 bytes"
    ),
    # the host
    (
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 140737488355328 bytes. Error code 12 (Cannot allocate "
        "memory)"
    ),
    (
        "[enforce fail at alloc_cpu.cpp:116] data. DefaultCPUAllocator: not enough memory: you "
        "tried to allocate 34359738368 bytes."
    ),
    "std::bad_alloc",
    # XLA
    (
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 "
        "bytes.\nBufferAssignment OOM Debugging."
    ),
    "RESOURCE_EXHAUSTED: Out of memory allocating 20029400304 bytes.",
    "RESOURCE_EXHAUSTED: Failed to allocate request for 1.00GiB (1073741824B) on device ordinal 0",
    (
        "RESOURCE_EXHAUSTED: Attempting to reserve 11.58G at the bottom of memory. That was "
        "not possible. There are 7.39G free, 0B reserved, and 7.39G reservable."
    ),
    (
        "OOM when allocating tensor with shape[4194304,4194304] and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
    ),
]

OTHERS: list[BaseException] = [
    ValueError("batch_size=512 needs more memory: CUDA out of memory expected, take less"),
    ValueError("out of memory"),
    RuntimeError("this dataset would run out of memory of ours; set in_memory=False"),
    RuntimeError("mat1 and mat2 shapes cannot be multiplied (4x3 and 4x3)"),
    RuntimeError("CUDA error: device-side assert triggered"),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    RuntimeError("out of resource: shared memory, Required: 102400, Hardware limit: 101376."),
    RuntimeError("Invalid buffer size: 0"),
    RuntimeError(
        "NCCL error: ncclUnhandledCudaError: Call to CUDA function failed.\n"
        "Last error:\nCuda failure 999 'unknown error'"
    ),
    # a data loader's shared memory, as torch/utils/data/_utils/signal_handling.py says it
    RuntimeError(
        "DataLoader worker (pid 71) is killed by signal: Bus error. It is possible that "
        "dataloader's workers are out of shared memory. Please try to raise your shared memory "
        "limit."
    ),
    RuntimeError("unable to mmap 1024 bytes from file </torch_71_2>: Cannot allocate memory (12)"),
    # the kernel's killer, from data loaders and launchers
    RuntimeError("DataLoader worker (pid 71) is killed by signal: Killed."),
    RuntimeError("DataLoader worker (pid(s) 71) exited unexpectedly"),
    OSError(28, "No space left on device"),
    OSError(12, "Cannot allocate memory"),  # of a fork
    RuntimeError("RESOURCE_EXHAUSTED: /runs/checkpoint; No space left on device"),
    RuntimeError("RESOURCE_EXHAUSTED: Received message larger than max (8388608 vs. 4194304)"),
    type("OperationalError", (Exception,), {})("out of memory\nDETAIL: Failed on request of size"),
    type("OutOfMemoryException", (Exception,), {})("Out of Memory Error: failed to pin block"),
    # Ray's of a worker that it killed: another class of the same name
    type("OutOfMemoryError", (Exception,), {})("Task was killed due to the node running low"),
    KeyboardInterrupt("CUDA out of memory. Tried to allocate 2.00 GiB"),
    SystemExit("CUDA out of memory. Tried to allocate 2.00 GiB"),
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:40])
def test_what_libraries_say_is_known(text: str) -> None:
    """Messages in the original type, and inside the text of a wrapper."""
    assert is_out_of_memory(RuntimeError(text))
    wrapped = (
        "Caught RuntimeError in replica 0 on device 0.\nOriginal Traceback (most recent call "
        f'last):\n  File "parallel_apply.py", line 96, in _worker\nRuntimeError: {text}'
    )
    assert is_out_of_memory(RuntimeError(wrapped))
    bold = RuntimeError(f"Exception encountered when calling Dense.call().\n\n\x1b[1m{text}\x1b[0m")
    assert is_out_of_memory(bold)  # Keras, of what a layer raises
    assert "\x1b" not in said(bold)


@pytest.mark.parametrize("error", OTHERS, ids=lambda error: f"{type(error).__name__}-{error}"[:50])
def test_nothing_else_is_taken_for_it(error: BaseException) -> None:
    """Errors of users, disks, databases, shared memory and killed workers, and Ctrl-C."""
    assert not is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("whatever it says"),
        torch.cuda.OutOfMemoryError("CUDA out of memory."),
        torch.AcceleratorError("CUDA error: out of memory"),
        torch.distributed.DistBackendError("Cuda failure 2 'out of memory'"),
        torch.multiprocessing.ProcessRaisedException(
            "\n\n-- Process 0 terminated with the following error:\ntorch.OutOfMemoryError: CUDA "
            "out of memory. Tried to allocate 2.00 GiB.",
            0,
            4711,
        ),
        MemoryError(),
        ValueError("RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate "),
    ],
    ids=lambda error: type(error).__name__,
)
def test_real_types_are_known(error: BaseException) -> None:
    """Instances of the real classes of PyTorch, Python and JAX."""
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "allocate",
    [lambda: torch.empty(1 << 60), lambda: bytearray(1 << 60)],
    ids=["torch", "python"],
)
def test_a_real_allocation_that_fails_is_known(allocate) -> None:
    """The host's allocators raise it for an exbibyte."""
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        allocate()
    assert is_out_of_memory(caught.value)


class Greedy(torch.utils.data.Dataset):
    """A dataset that allocates an exbibyte in the worker."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> object:
        return torch.empty(1 << 60) if index == 0 else None


def test_a_data_loaders_worker_tells_it() -> None:
    """The worker's error arrives as text in an error of the same type."""
    with pytest.raises(RuntimeError, match="Caught RuntimeError in DataLoader worker") as caught:
        list(torch.utils.data.DataLoader(Greedy(), num_workers=1))
    assert is_out_of_memory(caught.value)


def lack() -> RuntimeError:
    """Return PyTorch's error."""
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def raised_from(cause: BaseException | None, *, inside: BaseException | None = None) -> Exception:
    """Return the error of ``raise ValueError(...) from cause`` inside a handler."""
    error = ValueError("the step failed")
    error.__context__ = inside
    error.__cause__ = cause
    return error


def test_where_an_error_comes_from_counts() -> None:
    """Causes, contexts, and members of groups count at any depth."""
    assert is_out_of_memory(raised_from(lack()))
    assert is_out_of_memory(raised_from(raised_from(lack())))
    group = ExceptionGroup("ranks", [ValueError("one"), ExceptionGroup("inner", [lack()])])
    assert is_out_of_memory(group)
    assert is_out_of_memory(raised_from(group))
    handled = ValueError("a handler failed")
    handled.__context__ = lack()
    assert is_out_of_memory(handled)


def test_what_a_traceback_would_not_show_does_not_count() -> None:
    """An explicit cause, or ``from None``, replaces the context."""
    assert not is_out_of_memory(raised_from(None, inside=lack()))
    assert not is_out_of_memory(raised_from(KeyError("other"), inside=lack()))


def test_an_interrupt_is_never_swallowed() -> None:
    """Ctrl-C during the handling of the error, alone or in a group, stays Ctrl-C."""
    interrupt = KeyboardInterrupt()
    interrupt.__context__ = lack()
    assert not is_out_of_memory(interrupt)
    assert not is_out_of_memory(BaseExceptionGroup("ranks", [KeyboardInterrupt(), lack()]))


def test_a_circle_of_errors_ends() -> None:
    """Errors that are each other's context are visited once."""
    first, second = ValueError("first"), ValueError("second")
    first.__context__, second.__context__ = second, first
    assert not is_out_of_memory(first)


def failed_step() -> tuple[BaseException, weakref.ref[object]]:
    """A step whose traceback holds its tensors, in a reference cycle."""

    def step() -> None:
        activations = torch.zeros(1000)
        nonlocal watched
        watched = weakref.ref(activations)
        error = lack()
        circle: list[object] = [activations]
        circle.append(circle)
        raise error  # which the frame holds, as it holds the frame

    watched: weakref.ref[object] | None = None
    with pytest.raises(RuntimeError) as caught:
        step()
    assert watched is not None
    return caught.value, watched


def test_a_failed_steps_tensors_go() -> None:
    """Tensors are freed although the error and its traceback exist; the lines remain."""
    error, watched = failed_step()
    gc.collect()
    assert watched() is not None
    free_memory(error)
    assert watched() is None
    assert error.__traceback__ is not None


def test_a_wrapped_errors_tensors_go_too() -> None:
    """The frames are those of the cause, not of the wrapper."""
    error, watched = failed_step()
    wrapper = raised_from(error)
    free_memory(wrapper)
    assert watched() is None


def backend(calls: list[str], name: str, *, awake: bool, fault: str = "") -> SimpleNamespace:
    """The part of ``torch.cuda`` that is used here."""

    def empty_cache() -> None:
        calls.append(name)
        if fault:
            raise RuntimeError(fault)

    return SimpleNamespace(
        is_initialized=lambda: awake,
        empty_cache=empty_cache,
        OutOfMemoryError=torch.OutOfMemoryError,
    )


def test_only_devices_in_use_empty_their_caches(monkeypatch, capfd) -> None:
    """CUDA is not initialized; out of memory while emptying is ignored, other errors are not."""
    calls: list[str] = []
    monkeypatch.setattr(torch, "cuda", backend(calls, "cuda", awake=False))
    monkeypatch.setattr(torch, "xpu", backend(calls, "xpu", awake=True))
    free_memory()
    assert calls == ["xpu"]
    full = backend(calls, "cuda", awake=True, fault="CUDA error: out of memory")
    monkeypatch.setattr(torch, "cuda", full)
    free_memory()
    assert calls == ["xpu", "cuda", "xpu"]
    lost = backend(calls, "cuda", awake=True, fault="CUDA error: unspecified launch failure")
    monkeypatch.setattr(torch, "cuda", lost)
    with pytest.raises(RuntimeError, match="launch failure"):
        free_memory()
    assert capfd.readouterr() == ("", "")


def test_metal_empties_its_cache_where_it_is(monkeypatch) -> None:
    """On a Mac it is not known whether Metal is in use."""
    calls: list[str] = []
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: calls.append("mps"))
    free_memory()
    assert calls == ["mps"]


def test_nothing_is_imported_or_woken() -> None:
    """In a process without a framework, and in one with CUDA not initialized."""
    program = """
import sys
from energy_callbacks.tuning.out_of_memory import free_memory, is_out_of_memory, said
from energy_callbacks.tuning.snapshot.torch_snapshot import TorchSnapshot
free_memory(); print(is_out_of_memory(MemoryError()), "torch" in sys.modules)
import torch
free_memory(); print(torch.cuda.is_initialized())
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600.0
    )
    assert answer.stdout.split() == ["True", "False", "False"]
