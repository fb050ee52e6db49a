"""What the sensors of each machine lack beside those of an H200, and its names in a report."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

REFERENCE: Final = "NVIDIA"
# Names that a quantity has among the metrics and in the report; a final dot stands for all fields.
QUANTITIES: Final[Mapping[str, Sequence[str]]] = {
    "activity": (
        *(f"gpu/{name}" for name in ("sm_active", "sm_occupancy", "tensor_active", "dram_active")),
        "devices.activity.",
        "phases.activity.",
    ),
    "utilisation": ("gpu/utilisation", "devices.utilisation_mean", "series.utilisation"),
    "memory_used": (
        "memory/device_used_gib",
        "memory.device_used_mean_bytes",
        "memory.device_used_peak_bytes",
    ),
    "memory_utilisation": ("gpu/memory_utilisation", "devices.memory_utilisation_mean"),
    "memory_clock": ("gpu/memory_clock_mhz",),
    "clock": ("gpu/sm_clock_mhz",),
    "temperature": ("gpu/temperature_c", "devices.temperature_max_c", "series.temperature_c"),
    "throttled": ("gpu/throttled_fraction", "devices.throttled_s", "series.throttled_s"),
    "power_limit": ("gpu/power_limit_w", "devices.limit_w"),
    "uuid": ("devices.uuid",),
    "gpu energy": (
        *(f"efficiency/gpu_j_per_{unit}" for unit in ("step", "sample", "token")),
        *(
            f"efficiency/gpu_j_per_{unit}_{end}"
            for unit in ("step", "sample", "token")
            for end in ("lo", "hi")
        ),
        "energy/gpu_wh",
        "power/gpu_w",
        *(f"{part}.energy_j" for part in ("energy.gpu", "phases.gpu")),
        *(f"{part}.origin" for part in ("energy.gpu", "phases.gpu")),
        "efficiency.gpu.",
    ),
}
# A machine without libraries of the vendor; ``amdsmi`` would add throttling.
_INTEL: Final = (
    "activity", "utilisation", "memory_used", "memory_utilisation", "memory_clock", "temperature",
    "throttled",
)  # fmt: skip
LACKS: Final[Mapping[str, Sequence[str]]] = {
    "NVIDIA": (),
    "AMD card": ("activity", "memory_utilisation", "memory_clock", "throttled"),
    "AMD accelerator": ("activity", "throttled"),
    "Intel i915": _INTEL,
    "Intel xe": _INTEL,
    "Jetson": (*_INTEL, "clock", "power_limit", "uuid"),
    "Apple": (*(set(_INTEL) - {"utilisation"}), "clock", "power_limit", "uuid"),
    "RAPL": (*_INTEL, "clock", "power_limit", "uuid", "gpu energy"),
}
# Parts of a report that depend on the values, not on what is measured.
_BY_VALUE: Final = ("advice.", "warnings.", "unavailable.", "devices.counted_in")


def names_in(report: Mapping[str, Any]) -> set[str]:
    """Return the names of all values of a report in JSON that are known."""
    return {path for path in _known(report) if not path.startswith(_BY_VALUE)}


def _known(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all values that are known; indices of lists are left out."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _known(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _known(inner, path)
    elif value is not None:
        yield path


def assert_offers(name: str, found: set[str], reference: set[str]) -> None:
    """A machine has the names of the reference, except those of the quantities that it lacks."""
    listed = tuple(path for quantity in LACKS[name] for path in QUANTITIES[quantity])
    fields = tuple(path for path in listed if path.endswith("."))
    lacking = {path for path in reference if path in listed or path.startswith(fields)}
    assert reference - found == lacking
    assert found <= reference
