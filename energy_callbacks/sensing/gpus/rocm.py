"""Finds the PCI addresses of ROCm's devices, and the processes that use them, without ROCm.

The driver of ROCm, KFD, lists its GPUs in ``/sys/class/kfd/kfd/topology/nodes`` and its processes
in ``/sys/class/kfd/kfd/proc`` (Linux, ``kfd_topology.c`` and ``kfd_process.c`` in
``drivers/gpu/drm/amd/amdkfd``). The runtimes number the GPUs in the order of the nodes that the
masks leave (ROCm, "GPU isolation techniques"). Masks are interpreted as in ROCR-Runtime,
``amd_filter_device.cpp``, and ROCm/clr, ``rocdevice.cpp``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from energy_callbacks.sensing.gpus.drm_clients import LEAST_BYTES

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
    if (mask := environment.get("ROCR_VISIBLE_DEVICES")) is not None:
        nodes = _selected(
            [entry.strip() for entry in mask.split(",")], nodes, _rocr_index, once=True
        )
    if mask := environment.get("HIP_VISIBLE_DEVICES") or environment.get("CUDA_VISIBLE_DEVICES"):
        nodes = _selected(mask.split(","), nodes, _hip_index, once=False)
    return tuple(node.pci for node in nodes)


def _selected(
    mask: Sequence[str],
    nodes: Sequence[_Node],
    index_of: Callable[[str, Sequence[_Node]], int],
    *,
    once: bool,
) -> list[_Node]:
    """Return the nodes that a mask names, in its order; an invalid entry ends the list.

    Args:
        mask: entries of the mask.
        nodes: nodes from which the mask selects.
        index_of: returns the index that an entry names, -1 if it is invalid.
        once: whether an entry that names a node again is invalid too; otherwise it is ignored.
    """
    chosen: dict[int, _Node] = {}
    for entry in mask:
        index = index_of(entry, nodes)
        if not 0 <= index < len(nodes) or (once and index in chosen):
            break
        chosen[index] = nodes[index]
    return list(chosen.values())


def _rocr_index(entry: str, nodes: Sequence[_Node]) -> int:
    """Return the node that an entry names: an index, or the begin of the UUID of one node."""
    entry = entry.strip().upper()
    if entry.startswith("GPU-") and entry != "GPU-":
        found = [i for i, node in enumerate(nodes) if node.uuid.upper().startswith(entry)]
        return found[0] if len(found) == 1 else -1
    return int(entry) if re.fullmatch(r"\d+", entry) else -1


def _hip_index(entry: str, nodes: Sequence[_Node]) -> int:
    """Return the node that an entry names: an index without blanks or zeros before it, or a UUID.

    Versions before ROCm 6 do not know UUIDs, and show no device.
    """
    if "GPU-" in entry:
        return next((i for i, node in enumerate(nodes) if entry in node.uuid), -1)
    return int(entry) if re.fullmatch(r"0|[1-9]\d*", entry) else -1


def _nodes(root: Path) -> list[_Node]:
    """Return the GPUs of KFD in the order of their nodes; those hidden by a container are left out.

    The driver refuses to read the properties of a GPU whose device file the container lacks.
    """
    folders = (root / _KFD / "topology/nodes").glob("[0-9]*")
    ordered = sorted(folders, key=lambda folder: int(folder.name))
    return [node for node in map(_node, ordered) if node is not None]


def _node(folder: Path) -> _Node | None:
    try:
        gpu_id = (folder / "gpu_id").read_text().strip()
        lines = (folder / "properties").read_text().splitlines()
    except OSError:
        return None
    values = {name: int(value) for name, _, value in (line.partition(" ") for line in lines)}
    if gpu_id in ("", "0") or "location_id" not in values:  # a CPU
        return None
    place, number = values["location_id"], values.get("unique_id", 0)
    # The address is in the lower 16 bits; higher bits have the number of a partition of the GPU.
    pci = f"{values.get('domain', 0):04x}:{place >> 8 & 255:02x}:{place >> 3 & 31:02x}.{place & 7}"
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
        address = addresses.get(path.name.removeprefix("vram_"))
        if address and _bytes(path) >= LEAST_BYTES:
            found.setdefault(int(path.parent.name), set()).add(address)
    return found


def _bytes(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # the process has ended
        return 0
