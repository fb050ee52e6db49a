"""Finds the PCI addresses of ROCm's devices, and the processes that use them, without ROCm.

The driver of ROCm, KFD, lists its GPUs in ``/sys/class/kfd/kfd/topology/nodes`` and its processes
in ``/sys/class/kfd/kfd/proc`` (Linux, ``kfd_topology.c`` and ``kfd_process.c`` in
``drivers/gpu/drm/amd/amdkfd``). The runtimes number the GPUs in the order of the nodes that the
masks leave (ROCm, "GPU isolation techniques"). Masks are interpreted as in ROCR-Runtime,
``amd_filter_device.cpp``, and ROCm/clr, ``rocdevice.cpp``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from energy_callbacks.sensing.gpus.drm_clients import LEAST_BYTES
from energy_callbacks.sensing.sources.sysfs.drm import text

_KFD: Final = "class/kfd/kfd"


class _Node(NamedTuple):
    """A GPU in the list of KFD.

    Attributes:
        gpu_id: number of the GPU in the names of other files of KFD.
        pci: PCI address, such as ``0000:3b:00.0``.
        uuid: UUID as ROCm writes it; ``GPU-XX`` if the GPU has none.
    """

    gpu_id: str
    pci: str
    uuid: str


def visible(environment: Mapping[str, str], root: Path) -> tuple[str, ...]:
    """Return the PCI addresses of HIP's devices 0, 1, ..., as determined by the masks.

    ``ROCR_VISIBLE_DEVICES`` selects from all GPUs. ``HIP_VISIBLE_DEVICES`` selects from the result;
    if it is empty or not set, ``CUDA_VISIBLE_DEVICES`` does.

    Args:
        environment: environment variables, which may contain the masks.
        root: folder such as ``/sys``.
    """
    nodes = _nodes(root)
    masks = (
        environment.get("ROCR_VISIBLE_DEVICES"),
        environment.get("HIP_VISIBLE_DEVICES") or environment.get("CUDA_VISIBLE_DEVICES") or None,
    )
    for mask in masks:
        nodes = nodes if mask is None else _selected(mask, nodes)
    return tuple(node.pci for node in nodes)


def _selected(mask: str, nodes: list[_Node]) -> list[_Node]:
    """Return the nodes that a mask names, in its order; an invalid entry ends the list.

    An entry is an index, or the begin of the UUID of one node. The runtimes differ only for masks
    with mistakes: blanks, and entries that name a node again, which are ignored here.
    """
    chosen: dict[str, _Node] = {}
    for entry in (entry.strip() for entry in mask.split(",")):
        if entry.lower().startswith("gpu-"):
            found = [node for node in nodes if node.uuid.lower().startswith(entry.lower())]
        else:
            found = nodes[int(entry) :][:1] if entry.isdecimal() else []
        if len(found) != 1:
            break
        chosen[found[0].gpu_id] = found[0]
    return list(chosen.values())


def _nodes(root: Path) -> list[_Node]:
    """Return the GPUs of KFD in the order of their nodes; those hidden by a container are left out.

    The driver refuses to read the properties of a GPU whose device file the container lacks.
    """
    folders = (root / _KFD / "topology/nodes").glob("[0-9]*")
    ordered = sorted(folders, key=lambda folder: int(folder.name))
    return [node for node in map(_node, ordered) if node is not None]


def _node(folder: Path) -> _Node | None:
    gpu_id, properties = text(folder / "gpu_id"), text(folder / "properties")
    values = dict(line.split(maxsplit=1) for line in properties.splitlines())
    if gpu_id in ("", "0") or not values:  # a CPU, or hidden
        return None
    place, number = int(values["location_id"]), int(values.get("unique_id", 0))
    # The address is in the lower 16 bits; higher bits have the number of a partition of the GPU.
    address = f"{place >> 8 & 255:02x}:{place >> 3 & 31:02x}.{place & 7}"
    pci = f"{int(values.get('domain', 0)):04x}:{address}"
    return _Node(gpu_id, pci, f"GPU-{number:016x}" if number else "GPU-XX")


def processes(root: Path) -> dict[int, set[str]]:
    """Return the PCI addresses of the GPUs on which each process has memory, by pid.

    The pids are those of the host, which differ from those in a container.

    Args:
        root: folder such as ``/sys``.
    """
    addresses = {node.gpu_id: node.pci for node in _nodes(root)}
    found: dict[int, set[str]] = {}
    for path in (root / _KFD / "proc").glob("[0-9]*/vram_*"):
        address, held = addresses.get(path.name.removeprefix("vram_")), text(path)
        if address and held.isdecimal() and int(held) >= LEAST_BYTES:
            found.setdefault(int(path.parent.name), set()).add(address)
    return found
