"""The cases of Intel GPUs."""

from typing import Final

from energy_callbacks.sensing.sources.sysfs.intel_gpu import INTEL_GPU
from tests.sensing.sources.conformance.case import family_case
from tests.sensing.sources.trees import intel_gpu, xe_gpu

CASES: Final = (
    family_case(INTEL_GPU, intel_gpu, name="i915", gauges={"power_limit": 190.0, "clock": 2.4e9}),
    family_case(INTEL_GPU, xe_gpu, name="xe", gauges={"power_limit": 190.0, "clock": 2.85e9}),
)
