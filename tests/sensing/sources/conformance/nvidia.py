"""NVIDIA's cards: with a buffer of samples, without one, and without a counter."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pynvml
import pytest

from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource
from tests.fake_nvml import Card, FakeNvml, Scenario, Signal, a100, card_uuid, h200, pascal
from tests.fake_nvml.test_fake_card import CardClock
from tests.sensing.sources.conformance.case import Case, Lab

# Time between the start of the simulated library and that of a test, s: its buffer is full then.
_AGE_S: Final = 100.0
# What all calls return during a fault.
_ERRORS: Final = {
    "no answer": pynvml.NVML_ERROR_UNKNOWN,
    "missing": pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    "permission": pynvml.NVML_ERROR_NO_PERMISSION,
    "unplugged": pynvml.NVML_ERROR_GPU_IS_LOST,
}
_METERS: Final = (
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetSamples",
)


class _Clock(CardClock):
    """Time of the library; another process has its own."""

    def __reduce__(self) -> tuple[type[SystemClock], tuple[()]]:
        return SystemClock, ()


class _NvidiaLab(Lab):
    """Cards that the simulated library plays."""

    def __init__(
        self, case: "NvidiaCase", folder: Path, patch: pytest.MonkeyPatch, signals: Sequence[Signal]
    ) -> None:
        scenario = Scenario(cards=tuple(map(case.card, signals)), epoch_unix_s=1.7e9)
        self._nvml, self._patch = FakeNvml(scenario, folder), patch
        self._nvml.time.advance(_AGE_S)
        super().__init__(case, _Clock(self._nvml.time))
        self.sources = [NvmlSource(self.clock, card_uuid(i)) for i, _ in enumerate(signals)]
        self.keys = [f"gpu{i}" for i, _ in enumerate(signals)]
        self._right = {name: getattr(pynvml, name) for name in (*_METERS, "_nvmlCheckReturn")}

    def truth_j(self, start_s: float, end_s: float, index: int = 0) -> float:
        """See ``Lab``."""
        zero_s = self._nvml.scenario.epoch_unix_s + _AGE_S
        return self._nvml.energy_j(index, zero_s + start_s, zero_s + end_s)

    def begin(self, fault: str) -> None:
        """See ``Lab``."""
        if fault in _ERRORS:
            self._replace("_nvmlCheckReturn", lambda _: _raise(_ERRORS[fault]))
        elif fault == "all ones":
            self._replace("nvmlDeviceGetTotalEnergyConsumption", lambda _: 2**64 - 1)
            self._replace("nvmlDeviceGetPowerUsage", lambda _: 2**32 - 1)
            self._replace("nvmlDeviceGetSamples", self._samples_of_ones)
        else:
            self._change_counter(is_stopped=fault == "stopped")

    def _change_counter(self, *, is_stopped: bool) -> None:
        """Let the counter restart at 0, or stand still, from its next value on."""
        ask = self._right["nvmlDeviceGetTotalEnergyConsumption"]
        found: list[int] = []

        def changed_mj(handle: Any) -> int:
            found.append(ask(handle))
            return found[0] if is_stopped else found[-1] - found[0]

        self._replace("nvmlDeviceGetTotalEnergyConsumption", changed_mj)

    def _samples_of_ones(self, *arguments: Any) -> tuple[int, Any]:
        kind, samples = self._right["nvmlDeviceGetSamples"](*arguments)
        for one in samples:
            one.sampleValue.ullVal = 2**64 - 1
        return kind, samples

    def _replace(self, name: str, function: Callable[..., Any]) -> None:
        self._patch.setattr(pynvml, name, function)

    def end(self, fault: str) -> None:
        """See ``Lab``."""
        for name, function in self._right.items():
            self._replace(name, function)
        if fault == "unplugged":
            self._change_counter(is_stopped=False)

    def close(self) -> None:
        """See ``Lab``."""
        self.end("")
        super().close()
        self._nvml.close()


def _raise(code: int) -> None:
    raise pynvml.NVMLError(code)


_NO_COUNTER: Final = dict.fromkeys(("reset", "stopped", "stopped at the start"), "no counter")
_GAUGES: Final = {
    "memory_used": 2.0 * 2**30,
    "utilisation": 0.5,
    "memory_utilisation": 0.2,
    "temperature": 45.0,
    "clock": 1.5e9,
    "throttled": 0.0,
}
_ACTIVITY: Final = {
    "sm_active": 0.4,
    "sm_occupancy": 0.15,
    "tensor_active": 0.1,
    "dram_active": 0.3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaCase(Case):
    """A card of NVIDIA.

    Attributes:
        card: returns the card with a power.
    """

    card: Callable[[Signal], Card]
    source: type[NvmlSource] = NvmlSource
    no_values: Sequence[str] = ("no answer", "all ones")
    quiet: Sequence[str] = ("all ones",)
    fixes: Mapping[str, str] = field(
        default_factory=lambda: {"missing": "modprobe nvidia", "permission": "/dev/nvidiactl"}
    )

    def lab(
        self, folder: Path, patch: pytest.MonkeyPatch, signals: Sequence[Signal], start_j: float
    ) -> Lab:
        """See ``Case``."""
        return _NvidiaLab(self, folder, patch, signals)


_ALWAYS: Final = {
    "wrap": "the counter has 64 bits",
    "no value at the start": "a card without power and energy has its other quantities",
}
CASES: Final = (
    NvidiaCase(
        name="NVIDIA h200",
        card=h200,
        gauges=_GAUGES | _ACTIVITY | {"memory_clock": 3.201e9, "power_limit": 700.0},
        impossible=_ALWAYS,
    ),
    NvidiaCase(
        name="NVIDIA a100",
        card=a100,
        gauges=_GAUGES | {"clock": 1.41e9, "memory_clock": 1.593e9, "power_limit": 400.0},
        impossible=_ALWAYS,
    ),
    NvidiaCase(
        name="NVIDIA p100",
        card=pascal,
        gauges=_GAUGES | {"clock": 1.328e9, "memory_clock": 0.715e9, "power_limit": 250.0},
        impossible=_ALWAYS | _NO_COUNTER,
    ),
)
