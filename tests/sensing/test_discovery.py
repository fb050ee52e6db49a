import errno
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pynvml
import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.sensing import discovery, time_limit
from energy_callbacks.sensing.discovery import POWERCAP_VARIABLE, discover
from energy_callbacks.sensing.frameworks import cuda_driver
from energy_callbacks.sensing.sources import perf_energy
from energy_callbacks.sensing.sources.commands import powermetrics
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource
from energy_callbacks.sensing.sources.protocol import DiscoveredSources
from energy_callbacks.sensing.sources.sysfs.family import SYSFS_VARIABLE
from energy_callbacks.testing import FakeClock
from tests.core.waiting import until_ended
from tests.fake_nvml import presets
from tests.fake_nvml.library import FakeNvml
from tests.fake_nvml.scenario import Card, Scenario, card_uuid
from tests.fake_nvml.signals import Constant
from tests.sensing.sources.commands.recordings import printed
from tests.sensing.sources.test_perf_energy import PMU, TWO_PACKAGES, Kernel
from tests.sensing.sources.trees.described import described
from tests.sensing.sources.trees.tree import Tree

H200 = presets.h200(Constant(300.0))

Play = Callable[..., None]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No masks, no CUDA in this process, and no RAPL."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(cuda_driver, "uuids", lambda: None)
    monkeypatch.setattr(cuda_driver, "active_ordinals", lambda: ())
    monkeypatch.setenv(POWERCAP_VARIABLE, str(tmp_path / "powercap"))
    monkeypatch.setenv(SYSFS_VARIABLE, str(tmp_path / "sys"))


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """``play(card, ...)``: these cards are in the machine."""
    with ExitStack() as stack:

        def load(*cards: Card) -> None:
            stack.callback(FakeNvml(Scenario(cards=cards), tmp_path).close)

        yield load


def powercap(folder: Path, **zones: str) -> None:
    """RAPL zones with these names."""
    for zone, name in zones.items():
        path = folder / "powercap" / zone.replace("_", ":").replace("intel:", "intel-")
        path.mkdir(parents=True)
        (path / "name").write_text(name)
        (path / "energy_uj").write_text("1000000")
        (path / "max_energy_range_uj").write_text("262143328850")


def gpus(found: DiscoveredSources) -> list[str]:
    """Names of the sources for cards."""
    return [source.name for source in found.sources if isinstance(source, NvmlSource)]


def kinds(found: DiscoveredSources) -> list[str]:
    """Kinds of source, in order."""
    return [type(source).__name__ for source in found.sources]


def name(index: int, uuid: str | None = None) -> str:
    """The name of a card's source."""
    return NvmlSource(FakeClock(), uuid or card_uuid(index)).name


def test_machine_without_nvidia(play: Play) -> None:
    """Without NVIDIA there is no error, but an entry with reason and advice."""
    play()
    found = discover(FakeClock(), devices="all")

    assert gpus(found) == []
    reasons = {source: (reason, fix) for source, reason, fix in found.unavailable}
    assert reasons["NVIDIA GPU"][0]
    assert reasons["NVIDIA GPU"][1]
    assert kinds(found) == ["HostEstimateSource", "HostMemorySource", "AllocatorSource"]


def test_named_gpu_without_nvidia(play: Play) -> None:
    """A GPU that the user names must exist: without NVIDIA that is an error."""
    play()
    with pytest.raises(SourceUnavailable):
        discover(FakeClock(), devices=[0])


def test_wrong_index(play: Play) -> None:
    """An unknown index is an error, and the message lists the existing ones."""
    play(H200, H200)
    with pytest.raises(ValueError, match="no GPU with index 7: this machine has 0 "):
        discover(FakeClock(), devices=[7])


def test_negative_index(play: Play) -> None:
    """A negative index is an error on any machine, even one without GPUs."""
    play()
    with pytest.raises(ValueError, match="negative"):
        discover(FakeClock(), devices=[-1])


def test_one_source_per_chosen_card(play: Play) -> None:
    """Each chosen card has a source of its own."""
    play(H200, H200, H200)

    assert gpus(discover(FakeClock(), devices=[2, 0])) == [name(2), name(0)]
    assert gpus(discover(FakeClock(), devices="all")) == [name(0), name(1), name(2)]


def test_used_gpus_are_found_on_a_thread_of_their_own(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For ``auto`` nothing asks NVML before the sources are opened."""
    play(H200)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: pytest.fail("NVML is initialised"))

    assert kinds(discover(FakeClock()))[0] == "UsedGpus"
    assert kinds(discover(FakeClock(), used=(0,)))[0] == "UsedGpus"


@pytest.fixture
def hanging_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A driver that hangs until the end of the test, and a time limit of 0.1 s."""
    monkeypatch.setattr(time_limit, "PATIENCE_S", 0.1)
    nvml = FakeNvml(Scenario(cards=(H200,)), tmp_path)
    is_over, init = threading.Event(), pynvml.nvmlInit

    def hanging_init() -> None:
        is_over.wait()
        init()

    monkeypatch.setattr(pynvml, "nvmlInit", hanging_init)
    yield
    is_over.set()
    until_ended("energy_callbacks NVML")
    nvml.close()


@pytest.mark.usefixtures("hanging_driver")
def test_driver_that_hangs_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that hangs does not delay the start, and the report says that it hangs."""
    monkeypatch.setattr("energy_callbacks.accounting.journal_thread._STOP_TIMEOUT_S", 0.1)
    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path / "run"))
    monkeypatch.setattr(time_limit, "PATIENCE_S", 60.0)  # a wait for the driver would be seen
    before_s = time.monotonic()
    meter._start(used_gpus=(0,))
    start_s = time.monotonic() - before_s
    meter.stop()
    report = meter.report()

    assert start_s < 30.0
    assert any("NVIDIA GPU did not respond" in one.message for one in report.warnings)
    assert report.energy.gpu.energy_j is None


@pytest.mark.usefixtures("hanging_driver")
def test_named_card_of_a_driver_that_hangs() -> None:
    """With a driver that hangs, a card that the user names is an error."""
    with pytest.raises(SourceUnavailable, match="has not listed its GPUs"):
        discover(FakeClock(), devices=[0])


def test_rapl_with_memory_needs_no_estimate(play: Play, tmp_path: Path) -> None:
    """If RAPL measures CPUs and memory, nothing is estimated."""
    play(H200)
    powercap(tmp_path, intel_rapl_0="package-0", intel_rapl_0_0="dram")

    assert "HostEstimateSource" not in kinds(discover(FakeClock()))
    assert "RaplSource" in kinds(discover(FakeClock()))


def test_rapl_without_memory_is_completed(play: Play, tmp_path: Path) -> None:
    """If RAPL measures CPUs only, memory is estimated."""
    play(H200)
    powercap(tmp_path, intel_rapl_0="package-0")
    found = discover(FakeClock())

    assert kinds(found)[1:3] == ["RaplSource", "HostEstimateSource"]
    (estimate,) = (s for s in found.sources if type(s).__name__ == "HostEstimateSource")
    assert [channel.device.kind for channel in estimate.open()] == ["dram"]
    estimate.close()


def test_machine_without_rapl_is_estimated(play: Play) -> None:
    """Without RAPL CPUs and memory are estimated, and the reason is given."""
    play(H200)
    found = discover(FakeClock())

    (estimate,) = (s for s in found.sources if type(s).__name__ == "HostEstimateSource")
    assert {channel.device.kind for channel in estimate.open()} == {"cpu", "dram"}
    assert any(source == "RAPL" and reason for source, reason, _ in found.unavailable)
    estimate.close()


def test_perf_events_replace_files_that_cannot_be_read(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without permission for either of them, the fix is that of perf, which names both."""
    play(H200)
    Tree(tmp_path / "sys").write(TWO_PACKAGES, PMU)
    kernel = Kernel()
    monkeypatch.setattr(perf_energy, "open_event", kernel)
    found = discover(FakeClock())
    assert kinds(found)[1] == "PerfEnergySource"
    assert "HostEstimateSource" not in kinds(found)
    assert not [source for source, *_ in found.unavailable if source == "RAPL"]
    kernel.close()
    monkeypatch.setattr(perf_energy, "open_event", Kernel(refused={2: errno.EACCES}))
    found = discover(FakeClock())
    assert kinds(found)[1] == "HostEstimateSource"
    [(reason, fix)] = [rest for source, *rest in found.unavailable if source == "RAPL"]
    assert reason.startswith("no RAPL energy counter")
    assert "perf_event_paranoid" in fix


def test_apple_silicon_has_its_own_sensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """It replaces the estimate of the CPU; if it cannot be read, CPU and RAM are estimated."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(powermetrics, "POWERMETRICS", printed("powermetrics.plist"))
    found = discovery._host_energy(FakeClock())
    assert kinds(found) == ["PowermetricsSource", "HostEstimateSource"]
    assert [one.device.kind for one in found.sources[1].open()] == ["dram"]
    monkeypatch.setattr(powermetrics, "POWERMETRICS", ("no-such-powermetrics",))
    found = discovery._host_energy(FakeClock())
    assert kinds(found) == ["HostEstimateSource"]
    assert [source for source, *_ in found.unavailable] == ["powermetrics"]


def test_a_server_is_asked_for_its_power_only_if_the_user_says_so(play: Play) -> None:
    """And only by one process of the machine."""
    play(H200)
    assert "IpmiSource" not in kinds(discover(FakeClock()))
    assert "IpmiSource" in kinds(discover(FakeClock(), machine_power="ipmi"))
    assert "IpmiSource" not in kinds(discover(FakeClock(), machine_power="ipmi", host=False))


def test_the_acpi_power_meter_is_read_only_if_the_user_says_so(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the machine has none, the reason is given."""
    play(H200)
    monkeypatch.setenv(SYSFS_VARIABLE, str(tmp_path))
    assert "SysfsSource" not in kinds(discover(FakeClock(), machine_power="acpi"))
    *_, refusal = discover(FakeClock(), machine_power="acpi").unavailable
    assert refusal[:2] == (
        "ACPI power meter",
        "this machine has no ACPI power meter, or several that may overlap",
    )
    monkeypatch.setenv(SYSFS_VARIABLE, str(described("acpi_power_meter", tmp_path).root))
    assert "SysfsSource" not in kinds(discover(FakeClock()))
    assert "SysfsSource" in kinds(discover(FakeClock(), machine_power="acpi"))
    assert "SysfsSource" not in kinds(discover(FakeClock(), machine_power="acpi", host=False))


def test_second_rank_leaves_the_host_alone(play: Play) -> None:
    """Only one process per host measures CPUs and memory."""
    play(H200)
    found = discover(FakeClock(), host=False)

    assert kinds(found) == ["UsedGpus", "HostMemorySource", "AllocatorSource"]
