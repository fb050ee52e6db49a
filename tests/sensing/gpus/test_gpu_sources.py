"""Which GPUs are measured on machines with GPUs of several vendors."""

import os
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.report import EnergyReport, build
from energy_callbacks.sensing import time_limit
from energy_callbacks.sensing.discovery import POWERCAP_VARIABLE, discover
from energy_callbacks.sensing.frameworks import cuda_driver, loaded_frameworks
from energy_callbacks.sensing.gpus import gpu_sources, rocm
from energy_callbacks.sensing.gpus.used_gpus import UsedGpus
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource
from energy_callbacks.sensing.sources.protocol import DiscoveredSources
from energy_callbacks.sensing.sources.sysfs.family import SYSFS_VARIABLE
from energy_callbacks.testing import FakeClock
from tests.fake_nvml import presets
from tests.fake_nvml.library import FakeNvml
from tests.fake_nvml.scenario import Scenario, card_uuid
from tests.fake_nvml.signals import Constant
from tests.sensing.gpus.machines import kfd_node, nvidia
from tests.sensing.sources.trees import RunningTree, Tree, amd_gpu, rapl_package

UUIDS = ("GPU-a1b2c3d400000000", "GPU-a1b2c3d400000001")
CPU_W, APU_W, FIRST_W, SECOND_W = 50.0, 80.0, 100.0, 300.0


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """An empty ``/sys``, no masks, and no framework."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LOCAL_RANK", "HIP_VISIBLE_DEVICES",
                 "ROCR_VISIBLE_DEVICES", POWERCAP_VARIABLE):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cuda_driver, "uuids", lambda: None)
    monkeypatch.setattr(cuda_driver, "active_ordinals", lambda: ())
    monkeypatch.setenv(SYSFS_VARIABLE, str(tmp_path / "sys"))
    return Tree(tmp_path / "sys")


@pytest.fixture
def on_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process computes through ROCm."""
    monkeypatch.setattr(loaded_frameworks, "is_hip_loaded", lambda: True)


@pytest.fixture
def nvml(tree: Tree, tmp_path: Path) -> Iterator[FakeNvml]:
    """Two NVIDIA cards."""
    nvidia(tree, "0000:17:00.0", "0000:18:00.0")
    fake = FakeNvml(Scenario(cards=(presets.h200(Constant(300.0)),) * 2), tmp_path)
    yield fake
    fake.close()


@pytest.fixture
def amd(tree: Tree) -> RunningTree:
    """Two AMD GPUs, of 100 W and 300 W, in the opposite order for ROCm."""
    clock = FakeClock(start_s=100.0)
    running = RunningTree(tree, clock)
    for index, power_w in enumerate((FIRST_W, SECOND_W)):
        running.add(amd_gpu(tree, index), Constant(power_w))
    kfd_node(tree, 0, "0000:04:00.0")
    kfd_node(tree, 1, "0000:03:00.0")
    running.clock = clock  # type: ignore[attr-defined]
    return running


@pytest.fixture
def no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks NVIDIA's driver fails."""
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: pytest.fail("NVML is initialised"))


def names(found: DiscoveredSources) -> list[str]:
    """Names of the sources of single GPUs, in order."""
    of_gpus = ("NvmlSource", "SysfsSource", "AmdSmiSource")
    return [one.name for one in found.sources if type(one).__name__ in of_gpus]


def looked_for(found: DiscoveredSources) -> list[str]:
    """Names of the sources that find the GPUs in use, in order."""
    return [source.name for source in found.sources if isinstance(source, UsedGpus)]


def card(index: int) -> str:
    """The name of the source of an NVIDIA card."""
    return NvmlSource(FakeClock(), card_uuid(index)).name


@pytest.mark.usefixtures("amd", "no_nvml")
@pytest.mark.parametrize(
    ("devices", "chosen"),
    [
        ("all", (0, 1)),
        ([1], (1,)),
        ([1, 0], (1, 0)),
        (["GPU-a1b2c3d400000001"], (1,)),
        (["0000:03:00.0"], (0,)),
        (["04:00.0"], (1,)),
        (["00000000:04:00.0"], (1,)),
    ],
)
def test_named_gpus(devices: object, chosen: tuple[int, ...]) -> None:
    """Without NVIDIA, indices count the AMD GPUs; UUIDs and PCI addresses name them too."""
    found = discover(FakeClock(), devices)  # type: ignore[arg-type]

    assert names(found) == [f"AMD GPU gpu{index}" for index in chosen]
    assert not [one for one in found.unavailable if "GPU" in one[0]]


@pytest.mark.usefixtures("amd", "nvml")
@pytest.mark.parametrize("written", ["0000:18:00.0", "18:00.0"])
def test_list_of_all_vendors(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's cards keep NVML's indices, the others follow; an address names any of them."""
    cards = gpu_sources.all_cards()
    at = tuple(card.pci_bus_id for card in cards)
    found = discover(FakeClock(), devices="all")
    assert names(found) == [card(0), card(1), "AMD GPU gpu2", "AMD GPU gpu3"]
    found = discover(FakeClock(), devices=[3, 0])
    assert names(found) == [card(0), "AMD GPU gpu3"]
    found = discover(FakeClock(), devices=[at[1][-len(written) :].lower(), "03:00.0"])
    assert names(found) == [card(1), "AMD GPU gpu2"]


@pytest.mark.usefixtures("amd", "no_nvml")
@pytest.mark.parametrize("name", [2, "GPU-a1b2", "GPU-9", "0000:99:00.0", "00.0"])
def test_gpu_that_does_not_exist(name: int | str) -> None:
    """The error lists the GPUs of all vendors."""
    with pytest.raises(ValueError, match=rf"this machine has 0 \({UUIDS[0]}\), 1 \({UUIDS[1]}\)"):
        discover(FakeClock(), devices=[name])


def hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NVIDIA's driver hang."""

    def never(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(time_limit, "within", never)


@pytest.mark.usefixtures("amd", "nvml")
def test_driver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """AMD GPUs are measured, with the same indices, while NVIDIA's driver hangs."""
    hang(monkeypatch)
    found = discover(FakeClock(), devices="all")
    assert names(found) == ["AMD GPU gpu2", "AMD GPU gpu3"]
    assert any("has not listed its GPUs" in reason for _, reason, _ in found.unavailable)
    found = discover(FakeClock(), devices=[2])
    assert names(found) == ["AMD GPU gpu2"]
    assert not any("NVIDIA" in name for name, _, _ in found.unavailable)
    with pytest.raises(SourceUnavailable, match="has not listed its GPUs"):
        discover(FakeClock(), devices=[0])


@pytest.mark.usefixtures("amd")
@pytest.mark.parametrize(
    ("used", "finders"),
    [
        (None, ["NVIDIA GPU", "AMD GPU"]),
        ((0,), ["NVIDIA GPU", "AMD GPU"]),
        (("xpu:0",), ["AMD GPU"]),
    ],
)
def test_finders(nvml: FakeNvml, used: tuple[int | str, ...] | None, finders: list[str]) -> None:
    """NVIDIA's cards and the others have a source each, which finds those in use."""
    assert looked_for(discover(FakeClock(), used=used)) == finders


@pytest.mark.usefixtures("amd")
@pytest.mark.parametrize("is_used", [True, False])
def test_run_on_one_of_two_vendors(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, *, is_used: bool
) -> None:
    """No source reports that no GPU is in use if another one has found some; else one does."""
    monkeypatch.setattr(
        rocm, "processes", lambda _: {os.getpid(): {"0000:03:00.0"} if is_used else set()}
    )
    finders = [one for one in discover(FakeClock()).sources if isinstance(one, UsedGpus)]
    for finder in reversed(finders):
        finder.open()
        finder.finish()
    reports = [entry for one in finders for entry in one.found().unavailable]

    unused = [name for name, reason, _ in reports if "no GPU was seen in use" in reason]
    assert unused == ([] if is_used else ["NVIDIA GPU"])
    for finder in finders:
        finder.close()


@pytest.mark.usefixtures("amd", "nvml", "on_rocm")
@pytest.mark.parametrize("used", [None, (0,)])
def test_finder_on_rocm(used: tuple[int, ...] | None) -> None:
    """Under ROCm, ordinals are those of AMD GPUs, and NVIDIA's cards are not searched."""
    assert looked_for(discover(FakeClock(), used=used)) == ["AMD GPU"]


@pytest.mark.usefixtures("on_rocm", "no_nvml")
@pytest.mark.parametrize("devices", ["auto", [1]])
def test_second_die_of_a_card(amd: RunningTree, devices: object) -> None:
    """A GPU whose energy another one measures is read together with that one."""
    for index, limit_uw in enumerate((500_000_000, 0)):
        folder = f"devices/pci0000:00/0000:0{3 + index}:00.0"
        amd.tree.write({"device": "0x7408"}, folder)  # MI250X
        amd.tree.write({f"hwmon/hwmon{index}/power1_cap": limit_uw}, folder)
    found = discover(FakeClock(), devices, used=(0,))  # type: ignore[arg-type]
    if devices == "auto":
        finder = found.sources[0]
        finder.open()
        finder.read()
        found = finder.found()  # type: ignore[attr-defined]

    assert names(found) == ["AMD GPU gpu1", "AMD GPU gpu0"]


@pytest.mark.usefixtures("amd", "no_nvml")
def test_other_program() -> None:
    """For another program, the visible AMD GPUs are found at the first look."""
    found = discover(FakeClock(), other_program=True)
    finder = found.sources[0]
    finder.open()
    finder.read()

    assert names(finder.found()) == ["AMD GPU gpu0", "AMD GPU gpu1"]  # type: ignore[attr-defined]


def measured(amd: RunningTree, folder: Path, used: tuple[int, ...] | None) -> EnergyReport:
    """The report of a training of ten seconds."""
    clock = amd.clock  # type: ignore[attr-defined]
    amd.start()
    meter = EnergyMeter(config=EnergyConfig(report_dir=folder), clock=clock)
    meter._start(used_gpus=used)
    with meter.phase("train"):
        for _ in range(100):
            clock.advance(0.1)
            meter.step()
    meter.stop()
    amd.stop()
    return build(folder)


@pytest.mark.usefixtures("on_rocm", "no_nvml")
@pytest.mark.parametrize(
    ("ordinal", "key", "power_w"), [(0, "gpu1", SECOND_W), (1, "gpu0", FIRST_W)]
)
def test_training(amd: RunningTree, tmp_path: Path, ordinal: int, key: str, power_w: float) -> None:
    """The joules in the report are those of the AMD GPU behind the ordinal of HIP."""
    report = measured(amd, tmp_path / "run", (ordinal,))
    (device,) = (device for device in report.devices if device.scope == "gpu")

    assert device.key == key
    assert device.energy.energy_j == pytest.approx(power_w * report.run.duration_s, rel=0.02)
    assert report.energy.gpu.energy_j == pytest.approx(device.energy.energy_j)
    assert [one.source for one in report.unavailable if one.source.startswith("gpu")] == [
        f"gpu{ordinal}"
    ]
    assert not [one for one in report.warnings if "GPU" in one.message]


@pytest.mark.usefixtures("on_rocm", "no_nvml")
def test_apu(tmp_path: Path, tree: Tree) -> None:
    """The power of an APU contains that of the CPU, which the total does not count again."""
    clock = FakeClock(start_s=100.0)
    running = RunningTree(tree, clock)
    apu = amd_gpu(tree)
    tree.write({"hwmon/hwmon0/in1_label": "vddnb"}, apu.folder)
    kfd_node(tree, 0, "0000:03:00.0")
    running.add(apu, Constant(APU_W))
    running.add(rapl_package(tree), Constant(CPU_W))
    running.clock = clock  # type: ignore[attr-defined]
    report = measured(running, tmp_path / "run", (0,))
    duration_s = report.run.duration_s
    energies = {
        device.key: device.energy.energy_j or 0.0 for device in report.devices if device.scope
    }

    assert energies["gpu0"] == pytest.approx(APU_W * duration_s, rel=0.02)
    assert energies["cpu0"] == pytest.approx(CPU_W * duration_s, rel=0.02)
    assert report.energy.total.energy_j == pytest.approx(
        APU_W * duration_s + energies["ram"], rel=0.02
    )
