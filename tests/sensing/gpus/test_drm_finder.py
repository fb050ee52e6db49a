import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.sensing.frameworks import hip_runtime, xpu_devices
from energy_callbacks.sensing.gpus import drm_finder, drm_gpus
from energy_callbacks.sensing.gpus.drm_finder import DrmFinder
from energy_callbacks.sensing.gpus.used_gpus import KnownUse, UsedGpus
from energy_callbacks.sensing.sources.protocol import DiscoveredSources
from energy_callbacks.sensing.sources.sysfs import families
from energy_callbacks.sensing.sources.sysfs.family import SYSFS_VARIABLE
from energy_callbacks.testing import FakeClock
from tests.sensing.gpus.machines import (
    children,
    client,
    family,
    gpu,
    kfd_node,
    kfd_process,
)
from tests.sensing.sources.trees import Tree

AMD, INTEL = "0x1002", "0x8086"
# The nodes of ROCm are in the opposite order of the PCI addresses.
A, B = "0000:03:00.0", "0000:83:00.0"
X, Y, BUILT_IN = "0000:a3:00.0", "0000:b3:00.0", "0000:00:02.0"
ME = os.getpid()
VARIABLES = (
    "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
    "ONEAPI_DEVICE_SELECTOR", "ZE_FLAT_DEVICE_HIERARCHY", "ZE_ENABLE_PCI_ID_DEVICE_ORDER",
)  # fmt: skip

Open = Callable[..., UsedGpus]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A machine with two AMD GPUs, two of Intel, and one in the CPU; no framework is loaded."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    known = (family("AMD GPU", AMD), family("Intel GPU", INTEL, integrated=BUILT_IN))
    monkeypatch.setattr(families, "GPU_FAMILIES", known)
    monkeypatch.setenv(SYSFS_VARIABLE, str(tmp_path / "sys"))
    tree = Tree(tmp_path / "sys")
    for pci in (A, B):
        gpu(tree, pci, AMD)
    for pci in (X, Y, BUILT_IN):
        gpu(tree, pci, INTEL)
    for index, pci in enumerate(("", B, A)):
        kfd_node(tree, index, pci)
    return tree


@pytest.fixture(autouse=True)
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of processes."""
    monkeypatch.setattr(drm_finder, "_PROC", tmp_path / "proc")
    return tmp_path / "proc"


@pytest.fixture
def opened(tree: Tree) -> Open:
    """``opened(used, ...)``: the open source."""

    def play(used: Sequence[str] | None = None, **settings: bool) -> UsedGpus:
        clock = settings.pop("clock", None) or FakeClock(start_s=100.0)
        reports_none = settings.pop("reports_none", True)
        known = KnownUse(devices=used, **settings)
        finder = DrmFinder(clock, drm_gpus.inventory(tree.root), known)
        source = UsedGpus(clock, finder, set(), uses_none=used == (), reports_none=reports_none)
        assert source.open() == ()
        return source

    return play


def look(source: UsedGpus) -> DiscoveredSources:
    """What a look finds."""
    assert source.read() == ()
    return source.found()


def names(found: DiscoveredSources) -> list[str]:
    """Names of the sources."""
    return [source.name for source in found.sources]


def visible(found: DiscoveredSources) -> list[str]:
    """Keys of the GPUs that are reported as visible."""
    return [name for name, reason, _ in found.unavailable if "visible to this run" in reason]


def test_devices_of_hip(opened: Open) -> None:
    """HIP's device 0 is the GPU of the first node, whatever the order of PCI addresses."""
    found = look(opened(("hip:0",)))

    assert names(found) == ["AMD GPU gpu1"]
    assert found.since_s == float("-inf")


def test_masks_of_rocm(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before HIP is initialised, the masks say which GPU a device is."""
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1,0")
    assert names(look(opened(("hip:0",)))) == ["AMD GPU gpu0"]
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert names(look(opened(("hip:0",)))) == ["AMD GPU gpu1"]


def test_hip_knows_better(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """After HIP is initialised, it says which GPU a device is."""
    monkeypatch.setattr(hip_runtime, "pci_addresses", lambda: (A, B))

    assert names(look(opened(("hip:0",)))) == ["AMD GPU gpu0"]


def test_hip_is_asked_until_it_knows(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of HIP's devices never changes, and to ask for it costs time at every look."""
    answers = [None, (A, B)]
    monkeypatch.setattr(hip_runtime, "pci_addresses", lambda: answers.pop(0))
    source = opened(("hip:0",))

    assert names(look(source)) == ["AMD GPU gpu1"]
    assert names(look(source)) == ["AMD GPU gpu0"]
    assert names(look(source)) == []
    assert answers == []


def test_devices_of_xpu(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The masks, and later PyTorch, say which GPU a device is."""
    assert names(look(opened(("xpu:1",)))) == ["Intel GPU gpu3"]
    monkeypatch.setenv("ZE_AFFINITY_MASK", "1")
    assert names(look(opened(("xpu:0",)))) == ["Intel GPU gpu3"]
    monkeypatch.setattr(xpu_devices, "pci_addresses", lambda: (X, Y))
    assert names(look(opened(("xpu:0", "xpu:1")))) == ["Intel GPU gpu2", "Intel GPU gpu3"]


def test_devices_of_other_kinds(opened: Open) -> None:
    """Devices of CUDA and MPS are found elsewhere."""
    assert look(opened(("cuda:0", "mps:0"))).sources == ()


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("hip:2", "device hip:2 is in use, but .* unknown address .*"),
        ("xpu:7", "device xpu:7 is in use, but .* unknown address .*"),
    ],
)
def test_device_that_is_not_known(
    opened: Open, device: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A device in use whose GPU is not known is reported once."""
    import re

    source = opened((device,))
    found = [look(source), look(source)]
    refusals = [[one for one in each.unavailable if one[2]] for each in found]
    ((name, why, fix),) = refusals[0]

    assert name == "AMD GPU or Intel GPU"
    assert re.fullmatch(reason, why)
    assert "devices=" in fix
    assert refusals[1] == []
    assert caplog.text.count("is not measured") == 1


def test_device_without_sensors(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that HIP uses but whose driver shows no sensors is reported with its address."""
    monkeypatch.setattr(hip_runtime, "pci_addresses", lambda: ("0000:99:00.0",))
    refusals = [one for one in look(opened(("hip:0",))).unavailable if one[2]]

    assert "the GPU at 0000:99:00.0 has no sensors" in refusals[0][1]


def test_own_process(opened: Open, tree: Tree, proc: Path) -> None:
    """GPUs on which this process computes are in use, those of others are not."""
    clock = FakeClock(start_s=100.0)
    source = opened(clock=clock)
    kfd_process(tree, os.getppid(), {2: 2**30})
    client(proc, os.getppid(), 3, X, engine_compute="9 ns")
    assert names(look(source)) == []
    clock.advance(0.8)
    kfd_process(tree, ME, {1: 2**30})
    client(proc, ME, 3, Y, engine_compute="9 ns")
    found = look(source)

    assert names(found) == ["AMD GPU gpu1", "Intel GPU gpu3"]
    assert found.since_s == pytest.approx(100.0)
    assert names(look(source)) == []


@pytest.mark.parametrize("follow_children", [True, False])
def test_descendants(opened: Open, tree: Tree, proc: Path, *, follow_children: bool) -> None:
    """GPUs of descendants are in use, unless they are ranks, which measure their own."""
    children(proc, ME, 200)
    children(proc, 200, 300)
    kfd_process(tree, 200, {2: 2**30})
    client(proc, 300, 3, Y, engine_compute="9 ns")
    source = opened(follow_children=follow_children)

    assert names(look(source)) == (["AMD GPU gpu0", "Intel GPU gpu3"] if follow_children else [])


def test_integrated_gpu(opened: Open, proc: Path) -> None:
    """The GPU in the CPU is measured if it is used, and not reported otherwise."""
    source = opened()
    assert visible(look(source)) == ["gpu0", "gpu1", "gpu2", "gpu3"]
    client(proc, ME, 3, BUILT_IN, engine_render="9 ns")
    assert names(look(source)) == ["Intel GPU gpu4"]


def test_visible_gpus(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs that no mask hides are reported, once."""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("ONEAPI_DEVICE_SELECTOR", "!level_zero:0")
    source = opened()

    assert visible(look(source)) == ["gpu1", "gpu3"]
    assert visible(look(source)) == []


def test_other_program(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another program is measured, all visible discrete GPUs count from the start."""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "-1")
    found = look(opened(takes_visible=True))

    assert names(found) == ["Intel GPU gpu2", "Intel GPU gpu3"]
    assert found.since_s == float("-inf")


def test_run_that_uses_no_gpu(opened: Open) -> None:
    """A run that used no GPU by its end says so if nothing else does; one on the CPU at once."""
    for reports_none in (True, False):
        source = opened(reports_none=reports_none)
        source.finish()
        unused = [one for one in source.found().unavailable if "no GPU was seen" in one[1]]
        assert [name for name, _, _ in unused] == (["AMD GPU or Intel GPU"] if reports_none else [])
    with pytest.raises(SourceUnavailable, match="this run uses no GPU"):
        opened(())


def test_run_with_a_gpu_has_no_such_entry(opened: Open) -> None:
    """The last look of a run with a GPU adds nothing."""
    source = opened(("hip:0",))
    look(source)
    source.finish()

    assert source.found().unavailable == ()


def test_all_gpus_in_use(
    opened: Open, monkeypatch: pytest.MonkeyPatch, tree: Tree, proc: Path
) -> None:
    """When all GPUs are measured, no process is examined any more."""
    source = opened(takes_visible=True)
    client(proc, ME, 3, BUILT_IN, engine_render="9 ns")
    assert len(look(source).sources) == 5
    monkeypatch.setattr(drm_gpus, "intel", lambda _: ())
    path = "energy_callbacks.sensing.gpus.drm_clients.used_by"
    monkeypatch.setattr(path, lambda *_: pytest.fail("files are read"))

    assert names(look(source)) == []
