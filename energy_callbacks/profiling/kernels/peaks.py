"""Peak performance of cards, from their data sheets."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Of one card.

    Attributes:
        flops_per_s: of the tensor cores in bf16 and fp16, dense.
        bytes_per_s: of its memory.
        source: data sheet.
    """

    flops_per_s: float
    bytes_per_s: float
    source: str


# By the beginning of NVML's name. The sheets state tensor figures with sparsity, twice the dense.
_PEAKS: Final[dict[str, Peak]] = {
    "NVIDIA H200 NVL": Peak(
        flops_per_s=1671e12 / 2,
        bytes_per_s=4.8e12,
        source="NVIDIA H200 Tensor Core GPU, data sheet (H200 NVL)",
    ),
    "NVIDIA H200": Peak(
        flops_per_s=1979e12 / 2,
        bytes_per_s=4.8e12,
        source="NVIDIA H200 Tensor Core GPU, data sheet (H200 SXM)",
    ),
    "NVIDIA H100 80GB HBM3": Peak(
        flops_per_s=1979e12 / 2,
        bytes_per_s=3.35e12,
        source="NVIDIA H100 Tensor Core GPU, data sheet (H100 SXM)",
    ),
    "NVIDIA A100-SXM4-80GB": Peak(
        flops_per_s=624e12 / 2,
        bytes_per_s=2.039e12,
        source="NVIDIA A100 Tensor Core GPU, data sheet (A100 80GB SXM)",
    ),
    "NVIDIA A100-SXM4-40GB": Peak(
        flops_per_s=624e12 / 2,
        bytes_per_s=1.555e12,
        source="NVIDIA A100 Tensor Core GPU, data sheet (A100 40GB SXM)",
    ),
}


def peak_of(name: str) -> Peak | None:
    """Peak performance of a card; ``None`` without a data sheet, or for a part of a card.

    >>> peak_of("NVIDIA H200").bytes_per_s, peak_of("NVIDIA T4")
    (4800000000000.0, None)
    """
    if " MIG " in name:
        return None
    return next((peak for start, peak in _PEAKS.items() if name.startswith(start)), None)
