from collections.abc import Callable
from pathlib import Path

import pytest

from energy_callbacks.sensing.gpus import drm_gpus
from energy_callbacks.sensing.gpus.level_zero import IntelGpu
from energy_callbacks.sensing.sources.sysfs import families
from tests.sensing.gpus.machines import family, gpu, nvidia
from tests.sensing.sources.trees import Tree, amd_gpu

A, B, BUILT_IN = "0000:03:00.0", "0000:8a:00.0", "0000:00:02.0"
INTEL = "0x8086"


@pytest.fixture
def with_families(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``with_families(...)``: only these families are known."""

    def play(*known: families.Family) -> None:
        monkeypatch.setattr(families, "GPU_FAMILIES", known)

    return play


def test_machine_without_gpus(tmp_path: Path) -> None:
    """Without ``class/drm`` there is no GPU, and no error."""
    assert drm_gpus.inventory(tmp_path) == ()


def test_amd_cards(tmp_path: Path) -> None:
    """AMD cards have the first indices, the UUIDs of ROCm, and a source each."""
    tree = Tree(tmp_path)
    amd_gpu(tree, 1)
    amd_gpu(tree, 0)
    found = drm_gpus.inventory(tmp_path)

    assert [(one.info.key, one.info.pci_bus_id) for one in found] == [
        ("gpu0", "0000:03:00.0"),
        ("gpu1", "0000:04:00.0"),
    ]
    assert found[1].info.uuid == "GPU-a1b2c3d400000001"
    device = found[1].found.device
    assert (device.key, device.index, device.uuid) == ("gpu1", 1, "GPU-a1b2c3d400000001")


def test_order(tmp_path: Path, with_families: Callable[..., None]) -> None:
    """Discrete GPUs of all families are first, in the order of PCI addresses; UUIDs may lack."""
    tree = Tree(tmp_path)
    with_families(family("X GPU", integrated=BUILT_IN), family("Y GPU", "0x2222"))
    for pci in (BUILT_IN, B):
        gpu(tree, pci)
    gpu(tree, A, "0x2222")
    found = drm_gpus.inventory(tmp_path)

    assert [(one.family.name, one.info.index, one.info.uuid) for one in found] == [
        ("Y GPU", 0, A),
        ("X GPU", 1, B),
        ("X GPU", 2, BUILT_IN),
    ]


def test_nvidia_cards_are_first(tmp_path: Path, with_families: Callable[..., None]) -> None:
    """Indices begin after the cards of NVIDIA's driver; parts of cards for guests do not count."""
    tree = Tree(tmp_path)
    with_families(family())
    gpu(tree, A)
    nvidia(tree, "0000:17:00.0", "0000:18:00.0", "0000:18:00.4")
    tree.link("devices/pci0000:00/0000:18:00.4/physfn", "devices/pci0000:00/0000:18:00.0")
    tree.write({"bind": ""}, "bus/pci/drivers/nvidia")

    assert drm_gpus.nvidia_count(tmp_path) == 2
    assert [one.info.key for one in drm_gpus.inventory(tmp_path)] == ["gpu2"]


def test_intel_gpus(tmp_path: Path, with_families: Callable[..., None]) -> None:
    """Tiles are folders of xe, and those of i915 only if the GPU is discrete."""
    tree = Tree(tmp_path)
    with_families(family("Intel GPU", INTEL, integrated=BUILT_IN), family())
    gpu(tree, A, INTEL, tiles=2)
    gpu(tree, "0000:04:00.0")
    for pci in (B, BUILT_IN):
        gpu(tree, pci, INTEL, tiles=0)
        for gt in range(2):
            path = f"devices/pci0000:00/{pci}/drm/card{int(pci[5:7], 16)}/gt/gt{gt}/id"
            tree.write({path: gt})

    assert drm_gpus.intel(drm_gpus.inventory(tmp_path)) == [
        IntelGpu(A, False, 2),
        IntelGpu(B, False, 2),
        IntelGpu(BUILT_IN, True, 1),
    ]


def test_second_die_of_a_card(tmp_path: Path) -> None:
    """If another die measures the energy of a chosen one, it is read too, once."""
    tree = Tree(tmp_path)
    for index in range(2):
        amd_gpu(tree, index)
        folder = f"devices/pci0000:00/0000:0{3 + index}:00.0"
        tree.write({"device": "0x7408"}, folder)
    tree.write({"hwmon/hwmon1/power1_cap": 0}, "devices/pci0000:00/0000:04:00.0")
    first, second = drm_gpus.inventory(tmp_path)

    assert drm_gpus.with_meters([second], [first, second]) == [second, first]
    assert drm_gpus.with_meters([first], [first, second]) == [first]
    assert drm_gpus.with_meters([second, first], [first, second]) == [second, first]
    assert drm_gpus.with_meters([second], [second]) == [second]
