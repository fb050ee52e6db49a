"""A virtual clock that the simulated NVML library follows."""

from pathlib import Path

import pytest

from energy_callbacks.powercap.actuators import privilege
from energy_callbacks.powercap.safety.state_file import FOLDER_VARIABLE
from energy_callbacks.testing import FakeClock
from tests.fake_nvml import FakeNvml


class NvmlClock(FakeClock):
    """Virtual time of this process and of the library in it.

    Args:
        nvml: the library, which plays a scenario in virtual time.
    """

    def __init__(self, nvml: FakeNvml) -> None:
        self._nvml = nvml
        super().__init__(start_unix_s=nvml.scenario.epoch_unix_s + 60.0)

    @property
    def _now_s(self) -> float:
        return self._virtual_s

    @_now_s.setter
    def _now_s(self, value: float) -> None:
        self._virtual_s = value
        if hasattr(self, "_unix_offset_s"):
            self._nvml.time.set(value + self._unix_offset_s)


def prepare(nvml: FakeNvml, folder: Path, patch: pytest.MonkeyPatch, *, is_admin: bool) -> None:
    """Let child processes see the cards, and keep state files in a folder of the test.

    Args:
        nvml: the library.
        folder: an empty folder.
        patch: undoes the changes after the test.
        is_admin: whether this process has the privilege to change settings.
    """
    for name in ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG"):
        patch.setenv(name, nvml.env()[name])
    patch.setenv(FOLDER_VARIABLE, str(folder / "state"))
    patch.setattr(privilege, "is_admin", lambda: is_admin)
