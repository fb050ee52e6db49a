"""``doctor``, ``monitor`` and ``run`` on machines with AMD and Intel GPUs, whose power is known."""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from energy_callbacks.cli import doctor, main, monitor, run
from energy_callbacks.report import load
from energy_callbacks.sensing.clock import Clock, SystemClock
from energy_callbacks.sensing.discovery import POWERCAP_VARIABLE
from energy_callbacks.sensing.gpus import drm_finder
from energy_callbacks.sensing.sources.sysfs.family import SYSFS_VARIABLE
from energy_callbacks.testing import FakeClock
from tests.fake_nvml import Constant
from tests.sensing.gpus.machines import client
from tests.sensing.sources.trees import (
    LiveDevice,
    RunningTree,
    Tree,
    amd_gpu,
    intel_gpu,
    rapl_package,
    xe_gpu,
)
from tests.sensing.sources.trees.amd_gpus import mi300x

GPU_W, CPU_W = 200.0, 80.0
Make = Callable[..., LiveDevice]
GPUS = pytest.mark.parametrize("make", [amd_gpu, mi300x, intel_gpu, xe_gpu])


class Host:
    """A machine with one GPU of 200 W and a CPU of 80 W that RAPL measures.

    Attributes:
        tree: its files.
        gpu: the GPU.
    """

    def __init__(self, folder: Path, make: Make, clock: Clock) -> None:
        self.tree = Tree(folder)
        self._running = RunningTree(self.tree, clock)
        self.gpu = make(self.tree, start_j=50_000.0)
        self._running.add(self.gpu, Constant(GPU_W))
        self._running.add(rapl_package(self.tree, start_j=1000.0), Constant(CPU_W))
        self._running.start()

    def stop(self) -> None:
        """End the updates of the files."""
        self._running.stop()

    def path(self, name: str) -> Path:
        """Return the only file of the GPU whose path ends with a name."""
        [found] = {path.resolve() for path in (self.tree.root / self.gpu.folder).rglob(name)}
        return found


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that stands for ``/sys``."""
    monkeypatch.delenv(POWERCAP_VARIABLE, raising=False)
    monkeypatch.setenv(SYSFS_VARIABLE, str(tmp_path / "sys"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "sys"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Return the clock of ``doctor`` and ``monitor``."""
    clock = FakeClock()
    for command in (doctor, monitor):
        time = SimpleNamespace(sleep=clock.advance, time=clock.unix_s)
        monkeypatch.setattr(command, "time", time)
        monkeypatch.setattr(command, "SystemClock", lambda: clock)
    return clock


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """``forbid(name)``: files with a name cannot be read, not even by root."""
    really_open = os.open

    def refuse(name: str) -> None:
        def guarded(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if str(path).endswith(name) and not flags & os.O_WRONLY:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return really_open(path, flags, *args, **kwargs)

        monkeypatch.setattr(os, "open", guarded)

    return refuse


def diagnosis(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    """Return what the doctor finds, and what it prints, in one line."""
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["doctor"]) == 0
    return found, " ".join(capsys.readouterr().out.split())


# --- doctor


@GPUS
def test_doctor_shows_the_values_of_the_gpu(
    make: Make, root: Path, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """GPU and CPU are measured, each value has the file that it was read from, none is missing."""
    Host(root, make, clock)
    found, shown = diagnosis(capsys)
    assert found["measured_gpus"] == ["gpu0"]
    assert found["unavailable"] == []
    assert shown.startswith("Measured: gpu0, cpu0. Estimated: ram.")
    values = {one["quantity"]: one for one in found["channels"] if one["device"] == "gpu0"}
    assert values["power_limit"]["value"] > 100.0
    assert "energy" in values or values["power"]["value"] == GPU_W
    for one in values.values():
        assert Path(one["sensor"]).exists()
        # The path is not cut off, only divided into lines.
        assert one["sensor"] in shown.replace(" ", "")
    assert main(["doctor", "--strict"]) == 0


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        (amd_gpu, "power1_average", ("AMD GPU gpu0", "permission denied", "security module")),
        (intel_gpu, "energy1_input", ("Intel GPU gpu0", "permission denied", SYSFS_VARIABLE)),
    ],
)
@pytest.mark.usefixtures("root")
def test_doctor_says_what_forbids_a_file(make, name, words, clock, forbid, capsys, tmp_path):  # noqa: PLR0917 - fixtures
    """The message has the file, and what to look for."""
    root = tmp_path / "sys"
    Host(root, make, clock)
    forbid(name)
    found, shown = diagnosis(capsys)
    [entry] = found["unavailable"]
    assert name in entry["reason"]
    assert all(word in shown for word in words)
    assert shown.startswith("No GPU is measured. Measured: cpu0.")
    assert main(["doctor", "--strict"]) == 1


def test_doctor_has_the_line_that_makes_rapl_readable(
    root: Path, clock: FakeClock, forbid: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """The command for now, the line for every boot, and the capability; the GPU is measured."""
    Host(root, amd_gpu, clock)
    forbid("energy_uj")
    found, _ = diagnosis(capsys)
    assert found["measured_gpus"] == ["gpu0"]
    [entry] = found["unavailable"]
    assert entry["source"] == "RAPL"
    assert "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj" in entry["fix"]
    assert "mode class/powercap/intel-rapl:0/energy_uj = 0444" in entry["fix"]
    assert "CAP_DAC_READ_SEARCH" in entry["fix"]


def test_doctor_says_which_driver_an_intel_gpu_needs(
    root: Path, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Older kernels have no sensor of the GPU; the message has the first that has one."""
    host = Host(root, intel_gpu, clock)
    host.stop()
    host.tree.remove(f"{host.gpu.folder}/hwmon")
    _, shown = diagnosis(capsys)
    assert "Intel GPU 56A0 reports neither power nor energy" in shown
    assert "Linux 6.2 (driver i915) or 6.8 (driver xe)" in shown


@pytest.mark.usefixtures("clock")
def test_doctor_in_a_container_without_the_files_of_the_host(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has the drivers, and the variable for a mount of the host's files."""
    root.mkdir()
    found, shown = diagnosis(capsys)
    assert [one["source"] for one in found["unavailable"]][-1] == "AMD or Intel GPU"
    assert "load its driver (amdgpu, i915 or xe)" in shown
    assert f"set {SYSFS_VARIABLE} to that path" in shown


# --- monitor


@GPUS
def test_monitor_shows_power_and_energy(
    make: Make, root: Path, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """After 4 s, the GPU has 200 W, and at most one sampling period of energy is not read yet."""
    Host(root, make, clock)
    assert main(["monitor", "--json", "--seconds", "4"]) == 0
    looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    devices = {device["device"]: device for device in looks[-1]["devices"]}
    assert len(looks) == 4
    for key, power_w in (("gpu0", GPU_W), ("cpu0", CPU_W)):
        assert devices[key]["power_w"] == pytest.approx(power_w, rel=0.02)
        assert power_w * (4.0 - 0.9) < devices[key]["energy_j"] < power_w * 4.0 * 1.02
        assert devices[key]["origin"] == "measured"
    assert main(["monitor", "--seconds", "2"]) == 0
    shown = capsys.readouterr().out
    assert "gpu0" in shown
    assert "not measured" not in shown


# --- run


@pytest.fixture
def real(root: Path) -> Iterator[Callable[[Make], Host]]:
    """``real(make)``: a machine whose files follow the time of the system."""
    hosts: list[Host] = []

    def begin(make: Make) -> Host:
        hosts.append(Host(root, make, SystemClock()))
        return hosts[-1]

    yield begin
    for host in hosts:
        host.stop()


@pytest.mark.parametrize("make", [amd_gpu, intel_gpu])
def test_run_measures_a_command(
    make: Make, real: Callable[[Make], Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU, which the command could use, has the energy of its time; the exit code is kept."""
    real(make)
    monkeypatch.setattr(run.gpu_stats_plot, "save", lambda *_: None)
    command = [sys.executable, "-c", "import time; time.sleep(2.5); raise SystemExit(3)"]
    words = ["run", "--out", "measured", "--no-html", "--", *command]
    assert main(words) == 3
    report = load(Path("measured/energy_report.json"))
    [gpu] = [one for one in report.devices if one.kind == "gpu"]
    seconds = report.run.duration_s
    assert seconds > 2.5
    known_s = seconds * gpu.energy.coverage
    assert gpu.energy.coverage > 0.7
    assert gpu.energy.energy_j == pytest.approx(GPU_W * known_s, abs=gpu.energy.error_j)
    assert report.energy.total.origin == "mixed"
    [samples] = Path("measured").glob("gpu_stats_*.json")
    vendor = "amd" if make is amd_gpu else "intel"
    assert {one["gpu_type"] for one in json.loads(samples.read_text())} == {vendor}


def test_run_finds_the_gpu_that_the_command_uses(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two GPUs of AMD, the one on which a process of the command has memory."""
    tree = Tree(root)
    for index in range(2):
        amd_gpu(tree, index)
    proc = root.parent / "proc"
    monkeypatch.setattr(drm_finder, "_PROC", proc)
    client(proc, os.getpid(), 5, "0000:04:00.0", memory_vram="4096 KiB")
    keys = ("gpu0", "gpu1")
    devices = tuple(SimpleNamespace(key=key, kind="gpu", uuid=None) for key in keys)
    meter: Any = SimpleNamespace(devices=devices)
    assert run._used(meter, os.getpid(), set()) == {"gpu1"}
    assert run._used(meter, os.getpid(), {"gpu1"}) == set()
