"""AMD GPUs: graphics cards without and with a counter of 32 bits, an accelerator, and an APU."""

from typing import Final

from energy_callbacks.sensing.sources.sysfs.amd_gpu import AMD_GPU
from tests.sensing.sources.conformance.case import NO_TEXT, Case
from tests.sensing.sources.trees import amd_gpu
from tests.sensing.sources.trees.amd_gpus import GIB, apu, mi300x, navi

_CARD: Final = {
    "memory_used": GIB,
    "utilisation": 0.5,
    "temperature": 73.0,
    "clock": 2.304e9,
    "power_limit": 339.0,
}
_ACCELERATOR: Final = {
    "memory_used": 80 * GIB,
    "utilisation": 0.97,
    "memory_utilisation": 0.41,
    "temperature": 71.0,
    "clock": 2.1e9,
    "memory_clock": 1.3e9,
    "power_limit": 750.0,
}
_APU: Final = {
    "memory_used": 30.25 * GIB,
    "utilisation": 0.6,
    "temperature": 58.0,
    "clock": 2.9e9,
}
_ZERO: Final = {"zero": lambda right: b"0\n" if len(right) < 64 else right[:16] + bytes(16)}

CASES: Final = tuple(
    Case(
        name=f"AMD {make.__name__}",
        family=AMD_GPU,
        make=make,
        gauges=gauges,  # type: ignore[arg-type]
        no_values=NO_TEXT | _ZERO,
    )
    for make, gauges in ((amd_gpu, _CARD), (navi, _CARD), (mi300x, _ACCELERATOR), (apu, _APU))
)
