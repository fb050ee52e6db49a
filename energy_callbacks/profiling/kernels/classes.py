"""Classifies kernels and operators by their names.

The names are those of the CUDA libraries (cuDNN, cuBLAS, CUTLASS, NCCL, FlashAttention), of
PyTorch's own kernels and of the code that Inductor and XLA generate. They are not documented: a
name that matches no class is ``other``, which the report shows like any class.
"""

import re
from functools import cache
from typing import Final

OTHER: Final = "other"
COPY: Final = "copy"
IDLE: Final = "idle"
# The first match counts; the order matters, because attention consists of products.
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
# The beginning of a name tells the kind of kernel; template arguments may have thousands of
# characters.
_TELLING: Final = 300
# Classes that compute much per byte, and classes that mostly move bytes.
DENSE: Final = frozenset({"matrix product", "convolution", "attention"})
STREAMING: Final = frozenset({"elementwise and reduction", "normalisation", "optimizer", COPY})


@cache
def class_of(name: str) -> str:
    """Returns the class of a kernel.

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
    """Whether a kernel belongs to cuDNN by its name."""
    return "cudnn" in name.lower()
