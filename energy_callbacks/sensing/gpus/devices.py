"""Finds the GPUs that a user names, and the NVIDIA cards that ``CUDA_VISIBLE_DEVICES`` names.

After the framework has initialised CUDA, the driver itself lists the visible devices
(``cuda_driver``). Before that, ``resolve`` interprets the *mask* in the same way as CUDA. The mask
is the environment variable ``CUDA_VISIBLE_DEVICES``, which lists the devices that CUDA may use. If
the cards in use are ambiguous, an error is raised instead of a guess. An *ordinal* is the number,
counted from 0, by which CUDA identifies a visible device.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.core.settings.checks import Devices

MASK_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER_VARIABLE: Final = "CUDA_DEVICE_ORDER"
# CUDA parses an index as the C function strtoul does: "1gpu" is 1 (torch/cuda/__init__.py).
_INDEX: Final = re.compile(r"\s*\+?(\d+)")

_ADDRESS: Final = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """One physical GPU.

    Attributes:
        index: index in the list of all GPUs of the machine (``drm_gpus``). For an NVIDIA card it is
            NVML's index, as printed by nvidia-smi, in the order of PCI bus addresses.
        uuid: UUID, including ``GPU-``; the PCI bus address of a GPU without UUID.
        name: product name, such as ``NVIDIA H200``.
        pci_bus_id: PCI bus address, such as ``00000000:3B:00.0``; a GPU that is no PCI device has
            the path of its folder instead.
        memory_total_bytes: memory of the whole card; ``None`` if not known.
        compute_capability: major and minor version, such as (9, 0) for Hopper; ``None`` for other
            vendors.
        mig_uuids: UUIDs of the card's MIG instances (parts into which the driver can split a card),
            each including ``MIG-``; empty without MIG.
    """

    index: int
    uuid: str
    name: str
    pci_bus_id: str
    memory_total_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    mig_uuids: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Key of the card, as in ``core.records.Device``."""
        return f"gpu{self.index}"


class GpuChoice(NamedTuple):
    """A card, or a MIG instance on it.

    Attributes:
        gpu: the card.
        uuid: UUID of the instance if an instance is chosen, otherwise UUID of the card.
    """

    gpu: GpuInfo
    uuid: str

    @property
    def is_split(self) -> bool:
        """Whether the choice is a whole card that MIG splits into instances."""
        return bool(self.gpu.mig_uuids) and self.uuid == self.gpu.uuid


_Inventory = Sequence[GpuInfo]
_Choices = tuple[GpuChoice, ...]


def choose(devices: Devices, inventory: _Inventory) -> dict[GpuInfo, tuple[str, ...]]:
    """Return the cards that the user chose, each with its UUID or those of its MIG instances.

    Args:
        devices: ``"all"``, or a list of indices, PCI bus addresses, UUIDs and prefixes of UUIDs.
        inventory: all GPUs of the machine.

    Raises:
        ValueError: if ``devices`` names a GPU that this machine does not have, or if a name fits
            several GPUs.
    """
    if devices == "all":
        return {gpu: (gpu.uuid,) for gpu in inventory}
    return one_per_card(_named(device, inventory) for device in devices)


def one_per_card(choices: Iterable[GpuChoice]) -> dict[GpuInfo, tuple[str, ...]]:
    """Return the cards, each with its UUID if it is chosen, else its chosen instances' UUIDs."""
    chosen: dict[GpuInfo, dict[str, None]] = {}
    for gpu, uuid in choices:
        chosen.setdefault(gpu, {})[uuid] = None
    return {
        gpu: (gpu.uuid,) if gpu.uuid in uuids else tuple(uuids) for gpu, uuids in chosen.items()
    }


def _named(device: int | str, inventory: _Inventory) -> GpuChoice:
    """Return the GPU with this index or PCI address, or that or a MIG instance with this UUID."""
    if isinstance(device, int):
        found = [GpuChoice(gpu, gpu.uuid) for gpu in inventory if gpu.index == device]
        what = f"no GPU with index {device}"
    else:
        found = _at_address(device, inventory) or _matches(device, inventory)
        what = f"{len(found) or 'no'} GPUs with a PCI address or a UUID that begins with {device!r}"
    if len(found) != 1:
        raise ValueError(
            f"{what}: this machine has {_listing(inventory)} ('energy-callbacks doctor' lists "
            "them); name one of these in devices=, or leave it out to measure the GPUs in use"
        )
    return found[0]


def _at_address(name: str, inventory: _Inventory) -> list[GpuChoice]:
    """Return the GPUs with a PCI address, such as ``0000:3b:00.0`` or ``3b:00.0``."""
    address = name.lower()
    if not _ADDRESS.fullmatch(address):
        return []
    # NVML writes the domain with eight digits, Linux with four.
    return [
        GpuChoice(gpu, gpu.uuid)
        for gpu in inventory
        if f"0000{gpu.pci_bus_id.lower()}".endswith(address)
    ]


def _listing(inventory: _Inventory) -> str:
    return ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in inventory) or "none"


def _matches(name: str, inventory: _Inventory) -> list[GpuChoice]:
    """Return the cards and MIG instances whose UUID begins with ``name``.

    If ``name`` is a MIG name of drivers before 470, return the instance with that name.
    """
    card_uuid = card_of_old_mig_name(name)
    if card_uuid is not None:
        return [GpuChoice(gpu, name) for gpu in inventory if gpu.uuid == card_uuid]
    return [choice for choice in _all(inventory) if choice.uuid.startswith(name)]


def _all(inventory: _Inventory) -> list[GpuChoice]:
    """Return all cards and MIG instances."""
    return [GpuChoice(gpu, uuid) for gpu in inventory for uuid in (gpu.uuid, *gpu.mig_uuids)]


def card_of_old_mig_name(name: str) -> str | None:
    """Return the card's UUID from a MIG name of a driver before 470; ``None`` for any other name.

    NVIDIA's MIG user guide describes this format in "CUDA_VISIBLE_DEVICES and MIG".

    >>> card_of_old_mig_name("MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0")
    'GPU-8932f937-d72c-4106-c12f-20bd9faed9f6'
    """
    form = re.fullmatch(r"MIG-(GPU-[^/]+)/\d+/\d+", name)
    return form[1] if form else None


def resolve(
    environment: Mapping[str, str],
    inventory: _Inventory,
    used: Sequence[int] | None = None,
    driver: Sequence[str] | None = None,
) -> _Choices:
    """Return the cards or MIG instances with CUDA's ordinals ``used``.

    The driver determines them, or the mask before the driver is initialised. This initialises no
    device. If there is a mask, CUDA numbers the devices in the order of the mask. ROCm's masks
    (``ROCR_VISIBLE_DEVICES``, ``HIP_VISIBLE_DEVICES``) are ignored, because they apply to AMD cards
    only (ROCm, "GPU isolation techniques"). An invalid entry ends the list (CUDA programming guide,
    "CUDA environment variables"). If a device is named twice, no device is visible (as in
    ``torch.cuda``).

    Args:
        environment: environment variables, which may contain ``CUDA_VISIBLE_DEVICES`` and
            ``CUDA_DEVICE_ORDER``.
        inventory: all cards of the machine.
        used: CUDA's ordinals of the devices in use; ``None`` for all visible devices.
        driver: the result of ``cuda_driver.uuids``; ``None`` to use the mask.

    Raises:
        SourceUnavailable: if the environment variables do not identify the cards, or if there is no
            card for an ordinal or for a device of the driver.
    """
    if driver is not None:
        visible = tuple(_of_driver(bare_uuid, inventory) for bare_uuid in driver)
        return visible if used is None else _pick(visible, used, "the CUDA driver lists")
    mask = environment.get(MASK_VARIABLE)
    if mask is None:
        visible = tuple(GpuChoice(gpu, gpu.uuid) for gpu in inventory)
        if used is not None and len(visible) > 1:
            visible = _in_cuda_order(environment, inventory)
    else:
        visible = _in_mask(mask, environment, inventory)
    _refuse_hidden_instances(visible)
    says = f"{MASK_VARIABLE}={mask!r} shows" if mask is not None else "this machine has"
    return visible if used is None else _pick(visible, used, says)


def _in_cuda_order(environment: Mapping[str, str], inventory: _Inventory) -> _Choices:
    """Return all cards in the order of CUDA's ordinals; raise ``SourceUnavailable`` if unknown."""
    kinds = {(gpu.name, gpu.memory_total_bytes, gpu.compute_capability) for gpu in inventory}
    if len(kinds) > 1 and environment.get(ORDER_VARIABLE) != "PCI_BUS_ID":
        raise SourceUnavailable(
            "which GPU is in use is not known: CUDA orders different cards by speed "
            f"({ORDER_VARIABLE}={environment.get(ORDER_VARIABLE, 'FASTEST_FIRST')!r}), "
            f"nvidia-smi by PCI bus, and this machine has {_listing(inventory)}",
            f"set {ORDER_VARIABLE}=PCI_BUS_ID, or name GPUs by UUID in {MASK_VARIABLE} or devices=",
        )
    ordered = sorted(inventory, key=lambda gpu: gpu.pci_bus_id.lower())
    return tuple(GpuChoice(gpu, gpu.uuid) for gpu in ordered)


def _in_mask(mask: str, environment: Mapping[str, str], inventory: _Inventory) -> _Choices:
    """Return the cards and MIG instances that a mask lists, in the order of the mask."""
    form = _form(mask)
    ordered = _in_cuda_order(environment, inventory) if form == "index" else ()
    visible: list[GpuChoice] = []
    for entry in mask.split(","):
        if visible and _form(entry) not in ("", form):
            raise SourceUnavailable(
                f"{MASK_VARIABLE}={mask!r} mixes indices, GPU and MIG UUIDs, which CUDA does "
                "not document",
                "write only UUIDs of one kind (nvidia-smi -L lists them)",
            )
        if index := _INDEX.match(entry):
            found = list(ordered[int(index[1]) :][:1])
        else:
            found = _matches(entry, inventory) if _form(entry) else []
        if len(found) != 1:
            break
        visible += found
    return tuple(visible) if len(set(visible)) == len(visible) else ()


def _form(entry: str) -> str:
    """Return the form of a mask entry: ``index``, ``GPU-`` or ``MIG-``; ``""`` if invalid."""
    if _INDEX.match(entry):
        return "index"
    return entry[:4] if entry.startswith(("GPU-", "MIG-")) else ""


def _refuse_hidden_instances(visible: Sequence[GpuChoice]) -> None:
    """Raise ``SourceUnavailable`` if ordinals depend on how many MIG instances the driver shows.

    With a driver before R570, a process sees a single MIG instance and nothing else. Since R570, it
    can see several MIG instances (NVIDIA's MIG user guide, "CUDA device enumeration"). If only one
    card is visible, every ordinal is on that card in any case.
    """
    if len(visible) > 1 and any(choice.is_split for choice in visible):
        raise SourceUnavailable(
            "which GPU is in use is not known: MIG is on, and the numbers of its instances "
            "depend on the driver",
            f"set {MASK_VARIABLE} to the UUID to use, which begins with MIG- or GPU- "
            "(nvidia-smi -L lists them)",
        )


def _pick(visible: Sequence[GpuChoice], used: Sequence[int], says: str) -> _Choices:
    if len(visible) == 1 and visible[0].is_split:
        return tuple(visible) if used else ()
    if used and not visible:
        raise SourceUnavailable(f"{says} no GPU", "name GPUs in devices= to measure them anyway")
    missing = [ordinal for ordinal in used if not 0 <= ordinal < len(visible)]
    if missing:
        raise SourceUnavailable(
            f"CUDA device {missing[0]} is in use, but {says} {len(visible)} GPUs",
            f"check {MASK_VARIABLE}, or name the GPUs in devices= (nvidia-smi -L lists them)",
        )
    return tuple(visible[ordinal] for ordinal in used)


def _of_driver(bare_uuid: str, inventory: _Inventory) -> GpuChoice:
    for choice in _all(inventory):
        if choice.uuid.lower() in (f"gpu-{bare_uuid}", f"mig-{bare_uuid}"):
            return choice
    raise SourceUnavailable(
        f"CUDA uses a GPU with UUID {bare_uuid}, which NVML does not list: "
        f"it lists {_listing(inventory)}",
        "in a container, make the same GPUs available to CUDA and to NVML (docker run --gpus)",
    )
