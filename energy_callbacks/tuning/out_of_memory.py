"""Recognises out-of-memory errors and frees the memory of the failed step."""

import gc
import re
import sys
import traceback
from collections.abc import Iterator
from typing import Final

from energy_callbacks.tuning.torch_devices import awake_backends

# What libraries say that ran out of memory, each with the file that says it.
_TEXTS: Final = (
    # PyTorch, c10/cuda/CUDACachingAllocator.cpp ("HIP" on ROCm), c10/xpu and the same of
    # other vendors: "CUDA out of memory. Tried to allocate 2.00 GiB."
    r"\b(?:CUDA|HIP|XPU|HPU|NPU|MLU) out of memory\b",
    # c10/cuda/CUDAException.cpp and driver_api.h; Triton's driver.c says "Triton Error".
    r"\b(?:CUDA|HIP|XPU)(?: driver)? error: out of memory\b",
    r"\bTriton Error \[(?:CUDA|HIP)\]: out of memory\b",
    # aten/src/ATen/mps/MPSAllocator.mm, the second if one tensor exceeds the device.
    r"\bMPS backend out of memory\b",
    r"^(?:RuntimeError: )?Invalid buffer size: [\d.]+ Gi?B$",
    # Habana's PyTorch bridge, as accelerate/utils/memory.py knows it.
    r"MODULE:PT_DEVMEM Allocation failed",
    # SYCL, unified-runtime ur_api.h.
    r"\bUR_RESULT_ERROR_OUT_OF_(?:DEVICE|HOST)_MEMORY\b",
    # Status words of cublas_api.h, cudnn_graph.h, cusolver_common.h, cufft.h and their HIP
    # twins: CUBLAS_STATUS_ALLOC_FAILED, CUDNN_STATUS_ALLOC_FAILED and, since cuDNN 9,
    # CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED.
    r"\b(?:CU|HIP)[A-Z]+_\w*ALLOC(?:ATION)?_FAILED\b",
    # cuda.h, driver_types.h; XLA and CuPy print them.
    r"\b(?:CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory)\b",
    # cuDNN says of batches that are too large that it does not support them
    # (pytorch/pytorch#4107); aten/src/ATen/cuda/Exceptions.h adds a sentence after the dot.
    r"cuDNN error: CUDNN_STATUS_NOT_SUPPORTED\.",
    # aten/src/ATen/native/cudnn/Conv_v7.cpp, if no algorithm's workspace could be had.
    r"Unable to find a valid cuDNN algorithm to run convolution",
    # PyTorch, c10/core/impl/alloc_cpu.cpp, on Linux and on Windows.
    r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",
    # C++ itself, if PyTorch hands it on as a RuntimeError (torch/csrc/Exceptions.h).
    r"^(?:RuntimeError: )?std::bad_alloc$",
    # NCCL, src/include/checks.h and alloc.h; what PyTorch adds to "ncclUnhandledCudaError" as its
    # last error: "Cuda failure 2 'out of memory'", "Failed to CUDA calloc async 40 bytes".
    r"\bCuda failure (?:\d+ )?'out of memory'",
    r"\bFailed to CUDA (?:host )?[cm]?alloc",
    # TensorFlow, core/framework/op_kernel.cc and, from a copy whose target could not be
    # allocated, core/common_runtime/gpu/gpu_util.cc.
    r"\bOOM when allocating (?:temporary )?tensor\b",
    r"\bDst tensor is not initialized\b",
)
_SAID: Final = re.compile("|".join(_TEXTS), re.MULTILINE)
# TensorFlow and XLA (absl/status/status.h) give one code to all that ran out: memory, but also
# disk, files and message sizes. What they say of memory: XLA "Out of memory while trying to
# allocate", "Failed to allocate request for", "Attempting to reserve 1.00G at the bottom of memory"
# on TPUs, TensorFlow "failed to allocate memory".
_EXHAUSTED: Final = re.compile(r"\bRESOURCE_EXHAUSTED:")
_OF_MEMORY: Final = re.compile(r"(?i)\b(?:out of memory|OOM when|alloc\w*|attempting to reserve)")
# Keras, utils/traceback_utils.py, prints what a layer has raised in bold letters.
_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
# Whose errors are believed though they are no RuntimeError, the type that all these texts come in.
_FRAMEWORKS: Final = ("torch", "tensorflow", "jax", "jaxlib")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that device or host memory did not suffice.

    The error itself is looked at, what it was raised from, and the members of groups: data
    loaders, compilers and launchers wrap what they catch. An error that was raised while a lack of
    memory was being handled counts too, so a step is never to be tried again inside the handler of
    an earlier one.

    Texts count only in errors of the types that the libraries raise, for a user's own error may
    speak of memory as well. Not counted: a full disk, a data loader's shared memory, a worker that
    the kernel killed, a kernel that wants more shared memory than the card has, Ctrl-C.

    Args:
        error: what a step raised.
    """
    return isinstance(error, Exception) and any(map(_says_so, _chain(error)))


def said(error: BaseException) -> str:
    """The message of an error, without control codes for style."""
    return _STYLE.sub("", str(error))


def free_memory(error: BaseException | None = None) -> None:
    """Let go of what a failed step still holds, so that the next one finds the memory free.

    Local variables in the frames of the error's traceback are cleared (the lines stay), cycles
    are collected, and PyTorch's caches go back to the devices that it has in use.

    Args:
        error: what the step raised, if anything.
    """
    for link in _chain(error) if error is not None else ():
        traceback.clear_frames(link.__traceback__)
    gc.collect()
    torch = sys.modules.get("torch")
    for backend in awake_backends(torch) if torch is not None else ():
        try:
            backend.empty_cache()
        except RuntimeError as fault:
            if not is_out_of_memory(fault):  # even this can fail so: Lightning, utilities/memory.py
                raise


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and all that a printed traceback would show of where it comes from."""
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


def _says_so(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    # torch.cuda has the type in all versions; XPU raises the same one.
    if isinstance(error, MemoryError) or (torch and isinstance(error, torch.cuda.OutOfMemoryError)):
        return True
    text = said(error)
    names = [kind.__name__ for kind in type(error).__mro__]
    is_framework = type(error).__module__.partition(".")[0] in _FRAMEWORKS
    if _EXHAUSTED.search(text) or (is_framework and "ResourceExhaustedError" in names):
        # JAX puts arrays on a TPU with a ValueError.
        believed = is_framework or isinstance(error, RuntimeError | ValueError)
        return believed and _OF_MEMORY.search(text) is not None
    believed = is_framework or isinstance(error, RuntimeError)
    return believed and _SAID.search(text) is not None
