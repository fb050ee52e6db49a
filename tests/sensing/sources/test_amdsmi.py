"""What AMD's library adds to a GPU, with a module that answers as its documentation says."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.core.records import Channel, Quantity, Reading
from energy_callbacks.sensing.estimation.energy_curve import EnergyCurve
from energy_callbacks.sensing.sources.sysfs.amd_gpu import AMD_GPU
from energy_callbacks.sensing.sources.sysfs.source import SysfsSource
from energy_callbacks.testing import FakeClock
from tests.fake_nvml.signals import Constant
from tests.sensing.sources.fake_amdsmi import Library
from tests.sensing.sources.trees import LiveDevice, RunningTree, Tree, amd_gpu
from tests.sensing.sources.trees.amd_gpus import mi300x

RESOLUTION_UJ = 15.300000190734863  # as the library returns it
POWER_W = 300.0


def counted(t_s: float) -> int:
    """The counter of 300 W after some time, in units of 2^-16 J."""
    return round((5000.0 + POWER_W * t_s) * 2**16)


def new_fields(t_s: float) -> dict[str, Any]:
    """The fields since ROCm 6.3."""
    return {
        "energy_accumulator": counted(t_s),
        "counter_resolution": RESOLUTION_UJ,
        "timestamp": round(t_s * 1e9),
    }


class Machine:
    """A graphics card without a counter in its files, and a process that imported ``amdsmi``."""

    def __init__(
        self,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
        energy: Callable[[float], dict[str, Any]] = new_fields,
        make: Callable[[Tree], LiveDevice] = amd_gpu,
        **options: Any,
    ) -> None:
        self.clock = FakeClock()
        self.library = Library(self.clock, energy, **options)
        monkeypatch.setitem(sys.modules, "amdsmi", self.library)
        tree = Tree(root)
        self.running = RunningTree(tree, self.clock)
        self.running.add(make(tree), Constant(POWER_W))
        (found,) = AMD_GPU.find(tree.root)
        assert found.pci is not None
        self.source = SysfsSource(self.clock, AMD_GPU, found)
        self.channels: list[Channel] = []
        self.readings: list[Reading] = []

    def run(self, seconds: float) -> None:
        """Open the source, and read it as the sampler does."""
        self.channels = list(self.source.open())
        end_s = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < end_s:
            self.readings += self.source.read()
            self.clock.advance(self.source.interval_s)
            self.running.update()

    def values(self, quantity: Quantity) -> list[float]:
        """All readings of a quantity."""
        return [one.value for one in self.readings if one.channel.quantity == quantity]

    def energy(self, start_s: float, end_s: float) -> tuple[float | None, str]:
        """Joules and method between two moments."""
        curve = EnergyCurve(self.channels)
        curve.add(self.readings)
        curve.finish()
        energy = curve.energy(1000.0 + start_s, 1000.0 + end_s)
        return energy.energy_j, energy.method

    @property
    def quantities(self) -> set[str]:
        """The quantities that the source offers."""
        return {one.quantity for one in self.channels}


def old_fields(t_s: float) -> dict[str, Any]:
    """The fields before ROCm 6.3."""
    return {"power": counted(t_s), "counter_resolution": RESOLUTION_UJ, "timestamp": 1}


@pytest.mark.parametrize("fields", [new_fields, old_fields])
def test_the_counter_of_the_library_is_the_energy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: Callable[[float], dict[str, Any]]
) -> None:
    """A unit is 2^-16 J, not the rounded 15.3 microjoules, which are 0.27 % more."""
    machine = Machine(tmp_path, monkeypatch, fields)
    machine.run(40.0)
    energy_j, method = machine.energy(20.0, 35.0)
    assert energy_j == pytest.approx(POWER_W * 15.0, rel=1e-5)
    assert method == "counter"
    assert machine.values("power")[0] == POWER_W


@pytest.mark.parametrize(
    "fields",
    [
        {"energy_accumulator": "N/A", "counter_resolution": "N/A"},
        {"energy_accumulator": 2**64 - 1, "counter_resolution": RESOLUTION_UJ},
        {"energy_accumulator": 0, "counter_resolution": RESOLUTION_UJ},
        {},
    ],
)
def test_a_gpu_without_counter_keeps_its_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    """Texts, all ones and 0 are no energies."""
    machine = Machine(tmp_path, monkeypatch, lambda _: fields)
    machine.run(20.0)
    assert "energy" not in machine.quantities
    assert machine.energy(1.0, 19.0) == (pytest.approx(POWER_W * 18.0, rel=1e-9), "power")


@pytest.mark.parametrize("options", [{"fault": True}, {"addresses": {"b": "0000:99:00.0"}}])
def test_a_library_that_fails_or_does_not_know_the_gpu_is_left_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
) -> None:
    """The log says why; the files are read as without the library."""
    machine = Machine(tmp_path, monkeypatch, **options)
    machine.run(5.0)
    assert machine.quantities >= {"power", "clock"}
    assert not machine.quantities & {"energy", "throttled"}
    assert "amdsmi is not used" in caplog.text


def test_a_library_that_the_process_did_not_import_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To import it after PyTorch can end the process, so that only the files are read."""
    machine = Machine(tmp_path, monkeypatch)
    monkeypatch.delitem(sys.modules, "amdsmi")
    (tmp_path / "amdsmi.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    machine.run(2.0)
    assert "energy" not in machine.quantities


def test_a_call_that_fails_later_leaves_the_other_readings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the library fails, power is read and gives the energy."""
    machine = Machine(tmp_path, monkeypatch)
    machine.run(20.0)
    machine.library.fault = True
    before = len(machine.values("power"))
    end_s = machine.clock.monotonic_s() + 15.0
    while machine.clock.monotonic_s() < end_s:
        machine.readings += machine.source.read()
        machine.clock.advance(0.1)
        machine.running.update()
    assert len(machine.values("power")) > before + 100
    energy_j, method = machine.energy(25.0, 33.0)
    assert energy_j == pytest.approx(POWER_W * 8.0, rel=1e-6)
    assert method == "power"


def test_values_that_go_backward_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every seventh answer is that of an earlier moment: no energy is lost or counted twice."""
    calls = iter(range(10**6))

    def fields(t_s: float) -> dict[str, Any]:
        return new_fields(max(t_s - 2.0, 0.0) if next(calls) % 7 == 6 else t_s)

    machine = Machine(tmp_path, monkeypatch, fields)
    machine.run(40.0)
    energy = machine.values("energy")
    assert energy == sorted(energy)
    assert machine.energy(20.0, 35.0) == (pytest.approx(POWER_W * 15.0, rel=1e-5), "counter")


def test_a_counter_that_stands_still_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an MI210 within a process: power readings give the energy."""
    machine = Machine(tmp_path, monkeypatch, lambda _: new_fields(0.0))
    machine.run(40.0)
    assert machine.energy(1.0, 39.0) == (pytest.approx(POWER_W * 38.0, rel=1e-6), "power")


def cycles(t_s: float) -> dict[str, Any]:
    """1000 cycles a second; the power limit takes a quarter of them, heat a tenth after 20 s."""
    return {
        "accumulation_counter": (2**32 - 5000 + round(1000 * t_s)) % 2**32,
        "prochot_residency_acc": 7,
        "ppt_residency_acc": round(250 * t_s),
        "socket_thm_residency_acc": round(100 * max(t_s - 20.0, 0.0)),
        "vr_thm_residency_acc": 0,
        "hbm_thm_residency_acc": 0,
    }


def test_throttled_time_is_the_share_of_cycles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of 40 s and a tenth of 20 s are 12 s, although the counter of cycles wraps."""
    machine = Machine(tmp_path, monkeypatch, make=mi300x, metrics=cycles)
    machine.library.addresses = {"a": "0000:0c:00.0"}
    machine.run(60.0)
    readings = [one for one in machine.readings if one.channel.quantity == "throttled"]
    for one in readings:
        t_s = one.t_s - 1000.0
        truth_s = 0.25 * t_s + 0.1 * max(t_s - 20.0, 0.0)
        assert one.value == pytest.approx(truth_s, abs=0.01)
    assert 10 <= len(readings) <= 13  # about every 4.8 s


@pytest.mark.parametrize("field", sorted(cycles(0.0)))
def test_without_all_numbers_of_cycles_there_is_no_throttled_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """Older GPUs and libraries lack them, or say "N/A"."""
    machine = Machine(tmp_path, monkeypatch, metrics=lambda t_s: cycles(t_s) | {field: "N/A"})
    machine.run(1.0)
    assert "throttled" not in machine.quantities


def test_a_reset_of_the_cycles_adds_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a reset, the time goes on from where it was."""

    def fields(t_s: float) -> dict[str, Any]:
        return cycles(t_s if t_s < 20.0 else t_s - 20.0)

    machine = Machine(tmp_path, monkeypatch, metrics=fields)
    machine.run(60.0)
    last = [one for one in machine.readings if one.channel.quantity == "throttled"][-1]
    truth_s = 0.25 * (last.t_s - 1000.0) + 0.1 * (last.t_s - 1040.0)
    assert truth_s - 0.25 * 5.6 < last.value < truth_s  # without the interval of the reset


def test_the_counter_of_the_files_is_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library is asked for energy only if ``gpu_metrics`` has no known counter."""
    machine = Machine(tmp_path, monkeypatch, make=mi300x)
    machine.library.addresses = {"a": "0000:0c:00.0"}
    machine.run(2.0)
    names = [one.sensor.name for one in machine.channels if one.quantity == "energy" and one.sensor]
    assert [name.endswith("gpu_metrics") for name in names] == [True]
