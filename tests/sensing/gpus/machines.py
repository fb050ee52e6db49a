"""Makes the files by which Linux shows GPUs and the processes that use them.

Sources: Linux, ``drivers/gpu/drm/amd/amdkfd/kfd_topology.c`` (``node_show``) and ``kfd_process.c``
(``kfd_procfs_show``); Documentation/gpu/drm-usage-stats.rst; proc_pid_task(5).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from energy_callbacks.core.records import Device
from energy_callbacks.sensing.sources.sysfs.drm import cards
from energy_callbacks.sensing.sources.sysfs.family import Family, FileSensor, FoundDevice
from tests.sensing.sources.trees import Tree

KFD = "class/kfd/kfd"
MADE_UP = "0x1ed5"


def family(name: str = "Made-up GPU", vendor: str = MADE_UP, *, integrated: str = "") -> Family:
    """A family of GPUs with one sensor, their energy.

    Args:
        name: name of the family.
        vendor: PCI vendor id of its GPUs.
        integrated: PCI address of the one that is part of a processor.
    """

    def find(root: Path) -> Iterator[FoundDevice]:
        for pci, folder in cards(root, vendor):
            device = Device(key="", kind="gpu", scope="gpu", name=f"{name} at {pci}")
            yield FoundDevice(
                device=device, folder=folder, pci=pci, is_integrated=pci == integrated
            )

    energy = FileSensor(
        quantity="energy",
        kind="counter",
        files=("hwmon/hwmon*/energy1_input",),
        unit=1e-6,
        citation="none",
    )
    return Family(name=name, find=find, sensors=(energy,), permission_fix="fix", absence_fix="fix")


def gpu(tree: Tree, pci: str, vendor: str = MADE_UP, *, tiles: int = 1) -> None:
    """Add a GPU with an energy counter."""
    card = int(pci[5:7], 16)
    folder = f"devices/pci0000:00/{pci}"
    tree.write({"vendor": vendor, "uevent": f"PCI_SLOT_NAME={pci}"}, folder)
    tree.write({"hwmon/hwmon0/energy1_input": 1_000_000}, folder)
    tree.write({f"tile{tile}/gt0/freq0/act_freq": 2850 for tile in range(tiles)}, folder)
    tree.link(f"{folder}/drm/card{card}/device", folder)
    tree.link(f"class/drm/card{card}", f"{folder}/drm/card{card}")


def nvidia(tree: Tree, *addresses: str) -> None:
    """Add cards that NVIDIA's driver controls."""
    for pci in addresses:
        tree.link(f"bus/pci/drivers/nvidia/{pci}", f"devices/pci0000:00/{pci}")
        tree.write({"vendor": "0x10de"}, f"devices/pci0000:00/{pci}")


def kfd_node(tree: Tree, index: int, pci: str = "", *, unique_id: int = 0) -> None:
    """Add a node to the list of ROCm's driver: a GPU, or a CPU if it has no PCI address."""
    folder = f"{KFD}/topology/nodes/{index}"
    if not pci:
        tree.write({"gpu_id": 0, "properties": "cpu_cores_count 64\nsimd_count 0"}, folder)
        return
    domain, bus, rest = pci.split(":")
    device, function = rest.split(".")
    place = int(bus, 16) << 8 | int(device, 16) << 3 | int(function)
    properties = {
        "cpu_cores_count": 0,
        "simd_count": 304,
        "domain": int(domain, 16),
        "location_id": place,
        "unique_id": unique_id,
    }
    text = "\n".join(f"{name} {value}" for name, value in properties.items())
    tree.write({"gpu_id": gpu_id(index), "properties": text}, folder)


def gpu_id(index: int) -> int:
    """Number of the GPU at a node in the names of files of ROCm's driver."""
    return 50000 + index


def kfd_process(tree: Tree, pid: int, memory: Mapping[int, int]) -> None:
    """Add a process of ROCm with its bytes of memory by node."""
    files = {f"vram_{gpu_id(node)}": held for node, held in memory.items()}
    tree.write({"pasid": 32770, **files}, f"{KFD}/proc/{pid}")


def client(proc: Path, pid: int, number: int, pci: str, **fields: str) -> None:
    """Add an open file of a GPU to a process; ``_`` in the names of fields stands for ``-``."""
    for folder in ("fd", "fdinfo"):
        (proc / str(pid) / folder).mkdir(parents=True, exist_ok=True)
    (proc / str(pid) / "fd" / str(number)).symlink_to("/dev/dri/renderD128")
    known = {"pos": "0", "drm-driver": "xe", "drm-client-id": "7", "drm-pdev": pci}
    known |= {f"drm-{name.replace('_', '-')}": value for name, value in fields.items()}
    text = "\n".join(f"{name}:\t{value}" for name, value in known.items())
    (proc / str(pid) / "fdinfo" / str(number)).write_text(text + "\n")


def children(proc: Path, pid: int, *pids: int, thread: int = 0) -> None:
    """Say which children a thread of a process has."""
    folder = proc / str(pid) / "task" / str(thread or pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "children").write_text("".join(f"{child} " for child in pids))
