from pathlib import Path

import pytest

from energy_callbacks.sensing.gpus import rocm
from tests.sensing.gpus.machines import KFD, kfd_node, kfd_process
from tests.sensing.sources.trees import Tree

A, B, C, D = (f"0000:{bus}:00.0" for bus in ("c1", "03", "83", "43"))
UUIDS = (0xA1B2C3D400000001, 0xA1B2C3D400000002, 0xA1B2C3FF00000003, 0)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A host with two CPUs and four GPUs, whose nodes are not in the order of PCI addresses."""
    tree = Tree(tmp_path)
    kfd_node(tree, 0)
    kfd_node(tree, 1)
    for index, pci in enumerate((A, B, C, D)):
        kfd_node(tree, 2 + index if index < 3 else 10, pci, unique_id=UUIDS[index])
    return tree


CASES = (
    # ROCr, HIP, CUDA: what HIP's devices are
    (None, None, None, (A, B, C, D)),
    # ROCR_VISIBLE_DEVICES: indices, UUIDs and prefixes of UUIDs, in the order of the mask
    ("2,0", None, None, (C, A)),
    (" 1 , 3", None, None, (B, D)),
    ("GPU-A1B2C3D400000002", None, None, (B,)),
    ("gpu-a1b2c3d400000002,0", None, None, (B, A)),
    ("GPU-A1B2C3FF", None, None, (C,)),
    ("GPU-XX", None, None, (D,)),
    # an entry that fits two GPUs or none ends the list
    ("0,GPU-A1B2,1", None, None, (A,)),
    ("GPU-", None, None, ()),
    ("1,7,0", None, None, (B,)),
    ("0,-1,1", None, None, (A,)),
    ("0,none", None, None, (A,)),
    ("", None, None, ()),
    # HIP_VISIBLE_DEVICES
    (None, "3,1", None, (D, B)),
    (None, "2,-1,0", None, (C,)),
    (None, "-1", None, ()),
    (None, "GPU-a1b2c3d400000002", None, (B,)),
    (None, "GPU-0000", None, ()),
    (None, "1,1,0", None, (B, A)),
    # CUDA_VISIBLE_DEVICES is used if HIP_VISIBLE_DEVICES is empty; both empty hide nothing
    (None, None, "2", (C,)),
    (None, "1", "2", (B,)),
    (None, "", "2", (C,)),
    (None, "", "", (A, B, C, D)),
    # HIP's indices count what ROCr shows
    ("3,2", "1", None, (C,)),
    ("3,2", None, "0", (D,)),
    ("3,2", "2", None, ()),
    ("", "0", None, ()),
)


@pytest.mark.parametrize(("rocr", "hip", "cuda", "shown"), CASES)
def test_masks(
    tree: Tree, rocr: str | None, hip: str | None, cuda: str | None, shown: tuple[str, ...]
) -> None:
    """HIP's devices are the GPUs that the masks leave, in their order."""
    masks = {
        "ROCR_VISIBLE_DEVICES": rocr,
        "HIP_VISIBLE_DEVICES": hip,
        "CUDA_VISIBLE_DEVICES": cuda,
    }
    environment = {name: mask for name, mask in masks.items() if mask is not None}

    assert rocm.visible(environment, tree.root) == shown


def test_address_of_a_partition(tree: Tree) -> None:
    """The number of a partition, in the upper bits of its place, is not part of the address."""
    folder = f"{KFD}/topology/nodes/2"
    tree.write({"properties": f"domain 1\nlocation_id {3 << 28 | 0xC1 << 8 | 2 << 3 | 1}"}, folder)

    assert rocm.visible({"ROCR_VISIBLE_DEVICES": "0"}, tree.root) == ("0001:c1:02.1",)


def test_gpus_hidden_by_a_container(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU whose properties the driver refuses to read has no number."""
    read = Path.read_text

    def refuse(path: Path, **settings: str) -> str:
        if path.parent.name == "3" and path.name == "properties":
            raise PermissionError(1, "Operation not permitted", str(path))
        return read(path, **settings)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert rocm.visible({}, tree.root) == (A, C, D)


def test_machine_without_rocm(tmp_path: Path) -> None:
    """Without ROCm's driver there are neither GPUs nor processes."""
    assert rocm.visible({"HIP_VISIBLE_DEVICES": "0"}, tmp_path) == ()
    assert rocm.processes(tmp_path) == {}


def test_processes(tree: Tree) -> None:
    """A process uses the GPUs on which it has memory, but not those on which it has some bytes."""
    kfd_process(tree, 100, {2: 2**30, 3: 4096, 4: 0})
    kfd_process(tree, 200, {3: 2**21, 10: 2**21 - 1, 99: 2**30})
    kfd_process(tree, 300, {2: 0})
    tree.set(f"{KFD}/proc/200/vram_50010", "gone")

    assert rocm.processes(tree.root) == {100: {A}, 200: {B}}
