"""The cases of Intel GPUs."""

from typing import Final

from energy_callbacks.sensing.sources.sysfs.intel_gpu import INTEL_GPU
from tests.sensing.sources.conformance.case import Case
from tests.sensing.sources.trees import intel_gpu, xe_gpu

CASES: Final = (
    Case(
        name="i915",
        family=INTEL_GPU,
        make=intel_gpu,
        gauges={"power_limit": 190.0, "clock": 2.4e9},
    ),
    Case(
        name="xe",
        family=INTEL_GPU,
        make=xe_gpu,
        gauges={"power_limit": 190.0, "clock": 2.85e9},
    ),
)
