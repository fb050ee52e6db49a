"""Classifies kernels and operators by their names.

The names are those of the CUDA libraries (cuDNN, cuBLAS, CUTLASS, NCCL, FlashAttention), of
PyTorch's own kernels and of what Inductor and XLA generate. They are not documented: what fits
nothing is ``other``, which the report shows like any class.
"""

import re
from functools import cache
from typing import Final

OTHER: Final = "other"
COPY: Final = "copy"
IDLE: Final = "idle"
# The first that fits; the order matters, as attention is made of products.
_CLASSES: Final[dict[str, tuple[str, ...]]] = {
    "communication": ("nccl", "rccl", "all_?reduce", "all_?gather", "reduce_?scatter", "c10d::"),
    "optimizer": ("multi_tensor_apply", "_foreach_", "fused_?adam", "_fused_(adam|sgd)"),
    "attention": ("flash", "fmha", "attention", "sdpa"),
    "convolution": (
        "fprop",
        "dgrad",
        "wgrad",
        "implicit_gemm",
        "winograd",
        "conv(?!ert)",
        "cudnn.*[23]d",
        "depthwise",
    ),
    "matrix product": (
        "gemm",
        "gemv",
        "nvjet",
        "cutlass",
        "cublas",
        "splitk",
        "triton_tem",
        r"aten::(mm|bmm|mv|addmm|addmv|baddbmm|linear|matmul|einsum|dot)\b",
        "mkldnn_linear",
    ),
    "normalisation": ("norm", "bn_(fw|bw)"),
    COPY: ("^Memcpy", "^Memset", r"aten::(copy_|_to_copy|clone|contiguous)\b"),
    "elementwise and reduction": (
        "elementwise|reduce|softmax|triton_(poi|red|per)|fusion",
        "index|gather|scatter|embedding|pool|dropout|nll_loss|cross_entropy|CatArray|fill",
        "sort|scan|cumsum",
        "aten::(add|sub|mul|div|neg|exp|log|sqrt|rsqrt|pow|sum|mean|relu|gelu|silu|tanh|sigmoid)",
        "aten::(threshold|where|clamp|max|min|stack|cat|zero|lerp|eq|native_dropout)",
    ),
}
_PATTERNS: Final = tuple(
    (name, re.compile("|".join(patterns), re.IGNORECASE)) for name, patterns in _CLASSES.items()
)
# What a kernel is stands at the beginning; template arguments may go on for thousands more.
_TELLING: Final = 300
# Work that computes much for each byte, and work that mostly moves bytes.
DENSE: Final = frozenset({"matrix product", "convolution", "attention"})
STREAMING: Final = frozenset({"elementwise and reduction", "normalisation", "optimizer", COPY})


@cache
def class_of(name: str) -> str:
    """The class of a kernel.

    >>> class_of("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64")
    'matrix product'
    >>> class_of("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add>")
    'elementwise and reduction'
    >>> class_of("Memcpy HtoD (Pinned -> Device)"), class_of("ncclDevKernel_AllReduce_Sum_bf16")
    ('copy', 'communication')
    """
    begin = name[:_TELLING]
    return next((found for found, pattern in _PATTERNS if pattern.search(begin)), OTHER)


def is_cudnn(name: str) -> bool:
    """Whether a name says that it is cuDNN's."""
    return "cudnn" in name.lower()
