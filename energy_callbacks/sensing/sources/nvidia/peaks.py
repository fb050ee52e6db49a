"""Computes the peak performance of an NVIDIA card from its units, its clocks and its memory bus.

The driver tells the number of FP32 cores, the highest clocks and the width of the memory bus, also
to programs that do not use CUDA. The FLOP of a multiprocessor per clock depend on the compute
capability only, so that no list of product names is needed.
"""

import re
from typing import Any, Final

from energy_callbacks.core.records import Peak
from energy_callbacks.core.units import hertz_from_megahertz
from energy_callbacks.sensing.sources.nvidia.card import answer

# FLOP of the tensor cores (fp16, since Ampere also bf16, dense matrices; a multiply-add is two
# FLOP) per FP32 core and clock, by compute capability. Tensor cores of a multiprocessor: NVIDIA's
# white papers on the architectures Volta GV100, Turing, A100, GA102, Ada, H100 and RTX Blackwell
# (1024 FLOP per clock, but 2048 of A100 and 4096 of H100). FP32 cores of a multiprocessor: CUDA C++
# Programming Guide 12.8, section "Arithmetic Instructions" (64 in 7.0, 7.5 and 8.0, otherwise 128).
# For 10.0, the FLOP are those of the data sheet of the HGX B200 (2250 TFLOP/s per GPU), divided by
# 148 multiprocessors and rounded to 8192.
_TENSOR_FLOPS: Final = {
    (7, 0): 16.0,
    (7, 5): 16.0,
    (8, 0): 32.0,
    (8, 6): 8.0,
    (8, 9): 8.0,
    (9, 0): 32.0,
    (10, 0): 64.0,
    (12, 0): 8.0,
}
_TURING: Final = (7, 5)
# The smallest chips of Turing, TU116 and TU117, have no tensor cores (tables of sysrqmts.com: T4
# has 320; GTX 16, T500 and Quadro T1000 have none). Other names of such cards are assumed.
_NO_TENSOR_CORES: Final = re.compile(r"GTX|\bMX\d|\bT\d{3,4}\b")
# Tensor cores of GeForce cards sum in float32, as trainings do, at half the rate of sums in float16
# (GA102 white paper, table of the GeForce RTX 3090: 142 and 71 TFLOP/s).
_GEFORCE_RATE: Final = 0.5
# Clock for which data sheets state FLOP/s, as a share of the highest clock. It is 1 for most cards
# of servers. Cards for workstations and games, which have RTX in their names, reach higher clocks
# only with little load (RTX 3090: 1695 of 2100 MHz, RTX 4090: 2520 of 3105 MHz). The data sheets of
# H100 SXM and H100 PCIe state the FLOP/s of tensor cores for 1830 of 1980 and 1620 of 1755 MHz.
_RTX_CLOCK: Final = 0.81
_HOPPER_CLOCK: Final = 0.924
# Memory transfers two values per clock that the driver reports (double data rate).
_TRANSFERS: Final = 2


def peak(nvml: Any, handle: Any) -> Peak | None:
    """Return the peak performance of a card; ``None`` if its driver does not tell all inputs."""
    cores = answer(nvml, nvml.nvmlDeviceGetNumGpuCores, handle)
    bus_bits = answer(nvml, nvml.nvmlDeviceGetMemoryBusWidth, handle)
    kinds = (nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM)
    sm_mhz, memory_mhz = (answer(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, k) for k in kinds)
    if not (cores and bus_bits and sm_mhz and memory_mhz):
        return None
    capability = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    flops, unit = _flops_per_core(capability, nvml.nvmlDeviceGetName(handle))
    flops_per_s = None if flops is None else flops * cores * hertz_from_megahertz(sm_mhz)
    return Peak(
        flops_per_s=flops_per_s,
        bytes_per_s=_TRANSFERS * hertz_from_megahertz(memory_mhz) * bus_bits / 8,
        source=f"computed from {cores} cores ({unit}) with at most {sm_mhz} MHz, and from a memory "
        f"bus of {bus_bits} bits with {memory_mhz} MHz, as the driver reports them",
    )


def _flops_per_core(capability: tuple[int, int], name: str) -> tuple[float | None, str]:
    """Return the mean FLOP per FP32 core and highest clock, and the units that compute them.

    Cards without tensor cores, such as GTX cards, compute a multiply-add per clock and core.
    """
    is_small = capability == _TURING and _NO_TENSOR_CORES.search(name)
    if is_small or capability < min(_TENSOR_FLOPS):
        return 2.0, "float32, no tensor cores"
    flops = _TENSOR_FLOPS.get(capability)
    if flops is None:
        return None, "tensor cores of compute capability {}.{} are not known".format(*capability)
    rate = _GEFORCE_RATE if "GeForce" in name else 1.0
    clock = _RTX_CLOCK if "RTX" in name else _HOPPER_CLOCK if capability == (9, 0) else 1.0
    return flops * rate * clock, "tensor cores, sums in float32"
