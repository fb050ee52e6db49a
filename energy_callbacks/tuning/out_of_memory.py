"""Recognizes out-of-memory errors and frees the memory of the failed step."""

import gc
import re
import sys
import traceback
from collections.abc import Iterator
from typing import Final

from energy_callbacks.tuning.torch_devices import used_backends

# Patterns of messages of libraries that ran out of memory. The comments name the source files that
# contain the messages.
_TEXTS: Final = (
    # PyTorch, c10/cuda/CUDACachingAllocator.cpp ("HIP" on ROCm), c10/xpu, and other vendors:
    # "CUDA out of memory. Tried to allocate 2.00 GiB."
    r"\b(?:CUDA|HIP|XPU|HPU|NPU|MLU) out of memory\b",
    # c10/cuda/CUDAException.cpp and driver_api.h; Triton's driver.c says "Triton Error".
    r"\b(?:CUDA|HIP|XPU)(?: driver)? error: out of memory\b",
    r"\bTriton Error \[(?:CUDA|HIP)\]: out of memory\b",
    # aten/src/ATen/mps/MPSAllocator.mm; the second message is about a single tensor that is larger
    # than the memory of the device.
    r"\bMPS backend out of memory\b",
    r"^(?:RuntimeError: )?Invalid buffer size: [\d.]+ Gi?B$",
    # Habana's PyTorch bridge, from accelerate/utils/memory.py.
    r"MODULE:PT_DEVMEM Allocation failed",
    # SYCL, unified-runtime ur_api.h.
    r"\bUR_RESULT_ERROR_OUT_OF_(?:DEVICE|HOST)_MEMORY\b",
    # Status codes of cublas_api.h, cudnn_graph.h, cusolver_common.h, cufft.h and their HIP
    # versions: CUBLAS_STATUS_ALLOC_FAILED, CUDNN_STATUS_ALLOC_FAILED and, since cuDNN 9,
    # CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED.
    r"\b(?:CU|HIP)[A-Z]+_\w*ALLOC(?:ATION)?_FAILED\b",
    # Error codes of cuda.h and driver_types.h, and of HIP; XLA and CuPy print these names.
    r"\b(?:CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory)\b",
    # cuDNN reports batches that are too large as unsupported (pytorch/pytorch#4107);
    # aten/src/ATen/cuda/Exceptions.h adds a sentence after the dot.
    r"cuDNN error: CUDNN_STATUS_NOT_SUPPORTED\.",
    # aten/src/ATen/native/cudnn/Conv_v7.cpp, if no algorithm's workspace could be allocated.
    r"Unable to find a valid cuDNN algorithm to run convolution",
    # PyTorch, c10/core/impl/alloc_cpu.cpp, on Linux and on Windows.
    r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",
    # C++, converted by PyTorch to a RuntimeError (torch/csrc/Exceptions.h).
    r"^(?:RuntimeError: )?std::bad_alloc$",
    # NCCL, src/include/checks.h and alloc.h; PyTorch adds these to "ncclUnhandledCudaError":
    # "Cuda failure 2 'out of memory'", "Failed to CUDA calloc async 40 bytes".
    r"\bCuda failure (?:\d+ )?'out of memory'",
    r"\bFailed to CUDA (?:host )?[cm]?alloc",
    # TensorFlow, core/framework/op_kernel.cc, and core/common_runtime/gpu/gpu_util.cc for a copy
    # whose target could not be allocated.
    r"\bOOM when allocating (?:temporary )?tensor\b",
    r"\bDst tensor is not initialized\b",
)
_MESSAGE: Final = re.compile("|".join(_TEXTS), re.MULTILINE)
# TensorFlow and XLA (absl/status/status.h) use one code for every exhausted resource: memory, but
# also disk, files and message sizes. Messages about memory are: XLA "Out of memory while trying to
# allocate", "Failed to allocate request for", "Attempting to reserve 1.00G at the bottom of memory"
# on TPUs, TensorFlow "failed to allocate memory".
_EXHAUSTED: Final = re.compile(r"\bRESOURCE_EXHAUSTED:")
_OF_MEMORY: Final = re.compile(r"(?i)\b(?:out of memory|OOM when|alloc\w*|attempting to reserve)")
# Control codes of terminals. Keras (utils/traceback_utils.py) prints errors of a layer in bold.
_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
# The message of an error counts if the class of the error is defined in one of these packages, or
# is a RuntimeError, or is a ValueError and the message has the code RESOURCE_EXHAUSTED.
_FRAMEWORKS: Final = ("torch", "tensorflow", "jax", "jaxlib")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that device or host memory was exhausted.

    Data loaders, compilers and launchers wrap errors, so the causes of the error and the members
    of exception groups are checked too. An error that was raised while an out-of-memory error was
    being handled also counts. Therefore never run a step in the ``except`` block of an earlier
    step's error.

    A message counts only if the error has a type that the libraries raise, because the user's own
    errors may mention memory too. The result is ``False`` for a full disk, exhausted shared memory
    of a data loader, a worker that the operating system killed, a GPU kernel that needs more shared
    memory than the card has, and Ctrl-C.

    Args:
        error: exception raised by a step.
    """
    return isinstance(error, Exception) and any(map(_is_message, _chain(error)))


def said(error: BaseException) -> str:
    """Return the message of an error, without control codes of terminals."""
    return _STYLE.sub("", str(error))


def free_memory(error: BaseException | None = None) -> None:
    """Free the memory that a failed step still holds.

    This function clears the local variables in the frames of the error's traceback, collects
    reference cycles, and empties PyTorch's caches on the devices in use. The traceback can still be
    printed.

    Args:
        error: exception raised by the step; ``None`` if there was none.
    """
    for link in _chain(error) if error is not None else ():
        traceback.clear_frames(link.__traceback__)
    gc.collect()
    for backend in used_backends():
        try:
            backend.empty_cache()
        except RuntimeError as fault:
            # empty_cache itself may run out of memory (Lightning, utilities/memory.py).
            if not is_out_of_memory(fault):
                raise


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and the causes, contexts and group members that its traceback prints."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        waiting.append(link.__cause__ if link.__suppress_context__ else link.__context__)
        if isinstance(link, BaseExceptionGroup):
            waiting.extend(link.exceptions)


def _is_message(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    # Every version of PyTorch has this type in torch.cuda; XPU raises it too.
    if isinstance(error, MemoryError) or (torch and isinstance(error, torch.cuda.OutOfMemoryError)):
        return True
    text = said(error)
    names = [kind.__name__ for kind in type(error).__mro__]
    is_framework = type(error).__module__.partition(".")[0] in _FRAMEWORKS
    if _EXHAUSTED.search(text) or (is_framework and "ResourceExhaustedError" in names):
        # JAX raises a ValueError if an array does not fit on a TPU.
        believed = is_framework or isinstance(error, RuntimeError | ValueError)
        return believed and _OF_MEMORY.search(text) is not None
    believed = is_framework or isinstance(error, RuntimeError)
    return believed and _MESSAGE.search(text) is not None
