"""Peak performance of GPUs, from their data sheets."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak performance of one GPU.

    Attributes:
        flops_per_s: of the tensor cores in bf16 and fp16, dense.
        bytes_per_s: memory bandwidth.
        source: data sheet.
    """

    flops_per_s: float
    bytes_per_s: float
    source: str


# By the beginning of NVML's name. The data sheets state tensor figures with sparsity, which are
# twice the dense ones.
_PEAKS: Final[dict[str, Peak]] = {
    f"NVIDIA {name}": Peak(sparse_flops_per_s / 2, bytes_per_s, f"NVIDIA {source}")
    for name, sparse_flops_per_s, bytes_per_s, source in (
        ("H200 NVL", 1671e12, 4.8e12, "H200 Tensor Core GPU, data sheet (H200 NVL)"),
        ("H200", 1979e12, 4.8e12, "H200 Tensor Core GPU, data sheet (H200 SXM)"),
        ("H100 80GB HBM3", 1979e12, 3.35e12, "H100 Tensor Core GPU, data sheet (H100 SXM)"),
        ("A100-SXM4-80GB", 624e12, 2.039e12, "A100 Tensor Core GPU, data sheet (A100 80GB SXM)"),
        ("A100-SXM4-40GB", 624e12, 1.555e12, "A100 Tensor Core GPU, data sheet (A100 40GB SXM)"),
    )
}


def peak_of(name: str) -> Peak | None:
    """Returns the peak performance of a GPU; ``None`` if not known, or for a part of a GPU.

    >>> peak_of("NVIDIA H200").bytes_per_s, peak_of("NVIDIA T4")
    (4800000000000.0, None)
    """
    if " MIG " in name:
        return None
    return next((peak for start, peak in _PEAKS.items() if name.startswith(start)), None)
