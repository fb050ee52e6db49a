"""The package on macOS and Windows, simulated: names, modules and files of Linux are missing.

What this cannot show is how libraries and drivers behave there. mypy checks the types for both
platforms (CONTRIBUTING.md).
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.report.model.schema import from_json
from tests.integrations.processes import SHARED

PLATFORMS = ("darwin", "win32")
LINUX_ONLY = "/proc", "/sys", "/proc/stat", "/sys/class", "waitid"
POSIX_ONLY = "fcntl", "grp", "pwd", "resource", "termios", "fork", "pread"
# Sensor of the CPU, and the beginning of the text that says how to get it.
CPU_SENSOR = {
    "darwin": ("powermetrics", "powermetrics needs root"),
    "win32": ("RAPL", "only Linux has these files"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Use the package on both platforms, in one process that imports the frameworks once."""
    path = tmp_path_factory.mktemp("platforms")
    command = [sys.executable, "-m", "tests.platforms.script", str(path), *PLATFORMS]
    environment = {**os.environ, **SHARED, "KERAS_BACKEND": "torch", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=900.0)
    return path


@pytest.fixture(params=PLATFORMS)
def platform(request: pytest.FixtureRequest) -> str:
    """One of the platforms."""
    return request.param


@pytest.fixture
def found(folder: Path, platform: str) -> dict[str, Any]:
    """What happened on the platform."""
    content: dict[str, Any] = json.loads((folder / f"{platform}.json").read_text())
    assert "failure" not in content, content["failure"]
    return content


def test_what_is_missing(found: dict[str, Any], platform: str) -> None:
    """The simulation has none of what the other tests are about."""
    names = LINUX_ONLY if platform == "darwin" else (*LINUX_ONLY, *POSIX_ONLY)
    assert sorted(found["missing"]) == sorted(names)


def test_all_modules_can_be_imported(found: dict[str, Any]) -> None:
    """Those of the package and of the adapters; none reads a file of Linux at import."""
    assert found["errors"] == {}


def test_a_plain_loop_is_measured(platform: str, found: dict[str, Any]) -> None:
    """Steps are counted; the energy of the host is estimated, and the report says so."""
    loop = found["loop"]
    assert loop["steps"] > 0
    assert loop["host_j"] > 0.0
    assert "ram: power by CodeCarbon memory model" in loop["text"]
    assert f"not read: {CPU_SENSOR[platform][0]}" in loop["text"]


def test_doctor_says_what_is_estimated(platform: str, found: dict[str, Any]) -> None:
    """And that the sensor of the CPU, and on Windows an NVIDIA GPU, are not measured."""
    sensor, fix = CPU_SENSOR[platform]
    doctor = found["doctor"]
    assert (doctor["code"], doctor["err"]) == (0, "")
    assert "Estimated: cpu, ram" in doctor["out"]
    for source in (sensor,) if platform == "darwin" else ("NVIDIA GPU", sensor):
        assert f"Not measured: {source}" in doctor["out"]
    assert f"to fix this: {fix}" in doctor["out"]


def test_monitor_shows_the_host(found: dict[str, Any]) -> None:
    """Its devices are those that ``doctor`` lists."""
    assert found["monitor"]["code"] == 0
    last = json.loads(found["monitor"]["out"].splitlines()[-1])
    devices = {one["device"]: one for one in last["devices"]}
    assert set(devices) == {"cpu", "ram"}


def test_run_measures_a_command(found: dict[str, Any]) -> None:
    """The exit code is that of the command; its energy is estimated."""
    assert found["run"]["code"] == 3
    report = from_json(found["run"]["out"])
    assert report.run.error == "ChildProcessError: exit code 3"
    assert report.energy.host.origin == "estimated"


def test_signals_while_a_command_runs(found: dict[str, Any]) -> None:
    """A terminal sends SIGINT to the command, too; SIGTERM is passed on."""
    assert found["signals"] == {
        "SIGINT": [[], signal.SIGINT],
        "SIGTERM": [[signal.SIGTERM], signal.SIGTERM],
    }


def test_what_cannot_work_says_so(found: dict[str, Any], platform: str) -> None:
    """Each error names the platform, and what to use."""
    refusals = found["refusals"]
    works = {name for name, error in refusals.items() if error is None}
    assert works == ({"lock", "read", "power limits"} if platform == "darwin" else set())
    for error in filter(None, refusals.values()):
        assert "Linux" in error
