"""Classifies kernels and operators by their names.

The patterns match names of kernels in CUDA libraries (cuDNN, cuBLAS, CUTLASS, NCCL,
FlashAttention), of PyTorch's own kernels, and of kernels that the compilers Inductor and XLA
generate. These names are not documented. A name that matches no pattern belongs to the class
``other``.
"""

import re
from functools import cache
from typing import Final

OTHER: Final = "other"
COPY: Final = "copy"
IDLE: Final = "idle"
# Regular expressions by class. A name belongs to the first class that matches, so the order
# matters: names of attention kernels may also match the patterns of matrix products.
_CLASSES: Final[dict[str, tuple[str, ...]]] = {
    "communication": ("nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|c10d::",),
    "optimizer": ("multi_tensor_apply|_foreach_|fused_?adam|_fused_(adam|sgd)",),
    "attention": ("flash|fmha|attention|sdpa",),
    "convolution": ("fprop|dgrad|wgrad|winograd|conv(?!ert)|cudnn.*[23]d|depthwise|implicit_gemm",),
    "matrix product": (
        "gemm|gemv|nvjet|cutlass|cublas|splitk|triton_tem|mkldnn_linear",
        r"aten::(mm|bmm|mv|addmm|addmv|baddbmm|linear|matmul|einsum|dot)\b",
    ),
    "normalisation": ("norm|bn_(fw|bw)",),
    COPY: (r"^Memcpy|^Memset|aten::(copy_|_to_copy|clone|contiguous)\b",),
    "elementwise and reduction": (
        "elementwise|reduce|softmax|triton_(poi|red|per)|fusion",
        "index|gather|scatter|embedding|pool|dropout|nll_loss|cross_entropy|CatArray|fill",
        "sort|scan|cumsum",
        "aten::(add|sub|mul|div|neg|exp|log|sqrt|rsqrt|pow|sum|mean|relu|gelu|silu|tanh|sigmoid)",
        "aten::(threshold|where|clamp|max|min|stack|cat|zero|lerp|eq|native_dropout)",
    ),
}
_PATTERNS: Final = {
    name: re.compile("|".join(patterns), re.IGNORECASE) for name, patterns in _CLASSES.items()
}
# Number of characters at the beginning of a name that are matched. They contain the kind of kernel;
# the template arguments after them may have thousands of characters.
_TELLING: Final = 300
# DENSE: classes of kernels with many arithmetic operations per byte of memory traffic.
# STREAMING: classes of kernels with few arithmetic operations per byte.
DENSE: Final = frozenset({"matrix product", "convolution", "attention"})
STREAMING: Final = frozenset({"elementwise and reduction", "normalisation", "optimizer", COPY})


@cache
def class_of(name: str) -> str:
    """Return the class of a kernel or operator, by its name.

    >>> class_of("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64")
    'matrix product'
    >>> class_of("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add>")
    'elementwise and reduction'
    >>> class_of("Memcpy HtoD (Pinned -> Device)"), class_of("ncclDevKernel_AllReduce_Sum_bf16")
    ('copy', 'communication')
    """
    begin = name[:_TELLING]
    return next(
        (class_name for class_name, pattern in _PATTERNS.items() if pattern.search(begin)), OTHER
    )


def is_cudnn(name: str) -> bool:
    """Return whether the name of a kernel shows that it belongs to cuDNN."""
    return "cudnn" in name.lower()
