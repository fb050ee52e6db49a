"""The module ``amdsmi``, which answers as its documentation says."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from energy_callbacks.testing import FakeClock


class AmdSmiLibraryException(Exception):
    """The error of the library."""


@dataclass
class Library:
    """The module ``amdsmi``: functions and fields of the "AMD SMI Python API reference".

    Attributes:
        clock: virtual time.
        energy: returns the answer of ``amdsmi_get_energy_count``, given the seconds since start.
        metrics: returns that of ``amdsmi_get_gpu_metrics_info``.
        fault: whether all calls fail.
    """

    clock: FakeClock
    energy: Callable[[float], dict[str, Any]] = lambda _: {}
    metrics: Callable[[float], dict[str, Any]] = lambda _: {}
    fault: bool = False
    addresses: dict[str, str] = field(default_factory=lambda: {"a": "0000:03:00.0"})

    def amdsmi_init(self) -> None:
        self._check()

    def amdsmi_get_processor_handles(self) -> list[str]:
        return list(self.addresses)

    def amdsmi_get_gpu_device_bdf(self, handle: str) -> str:
        return self.addresses[handle].upper()

    def amdsmi_get_energy_count(self, handle: str) -> dict[str, Any]:
        return self._answer(handle, self.energy)

    def amdsmi_get_gpu_metrics_info(self, handle: str) -> dict[str, Any]:
        return self._answer(handle, self.metrics)

    def _answer(self, handle: str, make: Callable[[float], dict[str, Any]]) -> dict[str, Any]:
        self._check()
        assert handle == "a"
        return make(self.clock.monotonic_s() - 1000.0)

    def _check(self) -> None:
        if self.fault:
            raise AmdSmiLibraryException("AMDSMI_STATUS_NOT_SUPPORTED")
