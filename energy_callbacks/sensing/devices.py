"""Which physical GPUs this process uses.

The driver is asked first: once the framework has initialised CUDA, it names its devices under every
mask (``cuda_driver``). Before that, the masks are read as CUDA reads them (``resolve``), and
where they do not name one card beyond doubt the answer is a refusal, never a guess.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from energy_callbacks.core.config import Devices, EnergyConfig
from energy_callbacks.core.errors import SourceUnavailable

MASK_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER_VARIABLE: Final = "CUDA_DEVICE_ORDER"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """One physical card, as NVML lists it.

    Attributes:
        index: NVML's, which is the one that nvidia-smi prints; follows the PCI bus.
        uuid: with its ``GPU-`` in front.
        name: ``NVIDIA H200``.
        pci_bus_id: ``00000000:3B:00.0``.
        memory_total_bytes: of the whole card.
        compute_capability: (9, 0) for Hopper.
        mig_uuids: of its MIG instances, each with ``MIG-`` in front; empty without MIG.
    """

    index: int
    uuid: str
    name: str
    pci_bus_id: str
    memory_total_bytes: int
    compute_capability: tuple[int, int]
    mig_uuids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuChoice:
    """A card, and the MIG instance on it if one was named."""

    gpu: GpuInfo
    mig_uuid: str | None = None

    @property
    def uuid(self) -> str:
        """What NVML opens: the instance's UUID if one was named, else the card's."""
        return self.mig_uuid or self.gpu.uuid


def check_devices_argument(devices: Devices) -> None:
    """Raise for a ``devices=`` that is wrong on any machine; the rule is the configuration's.

    Raises:
        ValueError: for an empty list, a negative index or an unknown word.
        TypeError: for a device that is neither an index nor a UUID.
    """
    EnergyConfig(devices=devices)


def choose(
    devices: Devices,
    inventory: Sequence[GpuInfo],
    *,
    used_ordinals: Sequence[int] = (0,),
    environment: Mapping[str, str] | None = None,
    driver: Sequence[str] | None = None,
) -> tuple[tuple[str, ...], ...]:
    """What to measure, each physical card once: its UUID, or those of its MIG instances in use.

    Args:
        devices: ``"auto"`` (the cards that this run uses), ``"all"`` (every card that NVML
            lists), or NVML indices as nvidia-smi prints them and UUIDs or beginnings of UUIDs.
        inventory: all cards of the machine.
        used_ordinals: for ``"auto"``, CUDA's own numbers of the devices in use.
        environment: for ``"auto"``, where the masks stand; ``os.environ`` where left out.
        driver: for ``"auto"``, what ``cuda_driver.uuids`` answered.

    Raises:
        ValueError: if ``devices`` names a card that is not there.
        SourceUnavailable: if ``"auto"`` cannot know which card is meant.
    """
    check_devices_argument(devices)
    if devices == "all":
        return tuple((gpu.uuid,) for gpu in inventory)
    if devices != "auto":
        return _one_per_card(_named(device, inventory) for device in devices)
    if driver is not None:
        visible = tuple(_of_driver(bare_uuid, inventory) for bare_uuid in driver)
        return _one_per_card(_pick(visible, used_ordinals, "the CUDA driver lists"))
    masks = os.environ if environment is None else environment
    return _one_per_card(resolve(masks, inventory, used_ordinals))


def _one_per_card(choices: Iterable[GpuChoice]) -> tuple[tuple[str, ...], ...]:
    """For each card its own UUID if it was chosen as a whole, else its chosen instances'."""
    chosen: dict[str, dict[str, None]] = {}
    for choice in choices:
        chosen.setdefault(choice.gpu.uuid, {})[choice.uuid] = None
    return tuple((card,) if card in uuids else tuple(uuids) for card, uuids in chosen.items())


def _named(device: int | str, inventory: Sequence[GpuInfo]) -> GpuChoice:
    """The card that a user means by an index, a UUID or the beginning of one."""
    if isinstance(device, int):
        found = [GpuChoice(gpu=gpu) for gpu in inventory if gpu.index == device]
        what = f"no GPU with index {device}"
    else:
        found = _matches(device, inventory)
        what = f"{len(found) or 'no'} GPUs with a UUID that begins with {device!r}"
    if len(found) != 1:
        raise ValueError(
            f"{what}: this machine has {_listing(inventory)} (nvidia-smi -L lists them); "
            "name one of these in devices=, or leave it out to measure the GPUs in use"
        )
    return found[0]


def _listing(inventory: Sequence[GpuInfo]) -> str:
    return ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in inventory) or "none"


def _matches(name: str, inventory: Sequence[GpuInfo]) -> list[GpuChoice]:
    """Every card and MIG instance whose UUID begins with ``name``."""
    card_uuid = card_of_old_mig_name(name)
    if card_uuid is not None:
        return [GpuChoice(gpu=gpu, mig_uuid=name) for gpu in inventory if gpu.uuid == card_uuid]
    cards = [GpuChoice(gpu=gpu) for gpu in inventory if gpu.uuid.startswith(name)]
    instances = [
        GpuChoice(gpu=gpu, mig_uuid=mig_uuid)
        for gpu in inventory
        for mig_uuid in gpu.mig_uuids
        if mig_uuid.startswith(name)
    ]
    return cards + instances


def card_of_old_mig_name(name: str) -> str | None:
    """The card in a MIG name as drivers before 470 write it; ``None`` for any other name.

    The form is in NVIDIA's MIG user guide, "CUDA_VISIBLE_DEVICES and MIG".

    >>> card_of_old_mig_name("MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0")
    'GPU-8932f937-d72c-4106-c12f-20bd9faed9f6'
    """
    form = re.fullmatch(r"MIG-(GPU-[^/]+)/\d+/\d+", name)
    return form[1] if form else None


def resolve(
    environment: Mapping[str, str],
    inventory: Sequence[GpuInfo],
    used: Sequence[int] | None = None,
) -> tuple[GpuChoice, ...]:
    """The cards behind CUDA's ordinals, read from the masks alone; touches no device.

    CUDA numbers the cards that ``CUDA_VISIBLE_DEVICES`` names in the order of the mask; ROCm's
    masks (``ROCR_VISIBLE_DEVICES``, ``HIP_VISIBLE_DEVICES``) concern AMD cards only (ROCm, "GPU
    isolation techniques"). An entry that is no card ends the list (CUDA programming guide, "CUDA
    environment variables"); a card named twice empties it (so ``torch.cuda`` reads the mask, too).

    Args:
        environment: where ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER`` stand.
        inventory: all cards of the machine.
        used: CUDA's ordinals of the devices in use; ``None`` for all that are visible.

    Raises:
        SourceUnavailable: if the masks do not say beyond doubt which card is meant, or show
            no card of that ordinal.
    """
    mask = environment.get(MASK_VARIABLE)
    if mask is None:
        visible = tuple(GpuChoice(gpu=gpu) for gpu in inventory)
        if used is not None and len(visible) > 1:
            visible = _in_cuda_order(environment, inventory)
    elif _is_index(mask.split(",")[0]):
        visible = _of_indices(mask, _in_cuda_order(environment, inventory))
    else:
        visible = _of_uuids(mask, inventory)
    _refuse_hidden_instances(visible)
    says = f"{MASK_VARIABLE}={mask!r} shows" if mask is not None else "this machine has"
    return visible if used is None else _pick(visible, used, says)


def _in_cuda_order(
    environment: Mapping[str, str], inventory: Sequence[GpuInfo]
) -> tuple[GpuChoice, ...]:
    """All cards in the order in which CUDA counts them."""
    kinds = {(gpu.name, gpu.memory_total_bytes, gpu.compute_capability) for gpu in inventory}
    if len(kinds) > 1 and environment.get(ORDER_VARIABLE) != "PCI_BUS_ID":
        raise SourceUnavailable(
            "which GPU is in use is not known: CUDA counts unlike cards from the fastest on "
            f"({ORDER_VARIABLE}={environment.get(ORDER_VARIABLE, 'FASTEST_FIRST')!r}), "
            f"nvidia-smi by PCI bus, and this machine has {_listing(inventory)}",
            f"set {ORDER_VARIABLE}=PCI_BUS_ID, or name GPUs by UUID in {MASK_VARIABLE} or devices=",
        )
    ordered = sorted(inventory, key=lambda gpu: gpu.pci_bus_id.lower())
    return tuple(GpuChoice(gpu=gpu) for gpu in ordered)


def _is_index(entry: str) -> bool:
    return re.match(r"\s*\+?\d", entry) is not None


def _is_uuid(entry: str) -> bool:
    return entry.startswith(("GPU-", "MIG-"))


def _of_indices(mask: str, ordered: Sequence[GpuChoice]) -> tuple[GpuChoice, ...]:
    visible: list[GpuChoice] = []
    for entry in mask.split(","):
        if _is_uuid(entry):
            raise _mixed(mask)
        # CUDA reads an index like strtoul does: "1gpu" is 1 (torch/cuda/__init__.py).
        digits = re.match(r"\s*\+?(\d+)", entry)
        if digits is None or int(digits[1]) >= len(ordered):
            break
        visible.append(ordered[int(digits[1])])
    return _unless_repeated(visible)


def _of_uuids(mask: str, inventory: Sequence[GpuInfo]) -> tuple[GpuChoice, ...]:
    visible: list[GpuChoice] = []
    form = mask[:4]
    for entry in mask.split(","):
        if visible and (_is_index(entry) or (_is_uuid(entry) and not entry.startswith(form))):
            raise _mixed(mask)
        found = _matches(entry, inventory) if _is_uuid(entry) else []
        if len(found) != 1:
            break
        visible.append(found[0])
    return _unless_repeated(visible)


def _unless_repeated(visible: Sequence[GpuChoice]) -> tuple[GpuChoice, ...]:
    return tuple(visible) if len(set(visible)) == len(visible) else ()


def _mixed(mask: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"{MASK_VARIABLE}={mask!r} mixes indices, GPU and MIG UUIDs, and CUDA does not document "
        "what that means",
        "write only UUIDs of one kind (nvidia-smi -L lists them)",
    )


def _refuse_hidden_instances(visible: Sequence[GpuChoice]) -> None:
    """Refuse if ordinals depend on how many MIG instances the driver shows.

    Before R570 a process sees a single instance and no other card beside it, since then one
    instance a GPU instance (NVIDIA's MIG user guide, "CUDA device enumeration"). On a machine
    whose only visible card is split, every ordinal is that card all the same.
    """
    is_split = any(choice.gpu.mig_uuids and choice.mig_uuid is None for choice in visible)
    if is_split and len(visible) > 1:
        raise SourceUnavailable(
            "which GPU is in use is not known: MIG is on, and how its instances are counted "
            "depends on the driver",
            f"set {MASK_VARIABLE} to the MIG- or GPU- UUID to use (nvidia-smi -L lists them)",
        )


def _pick(visible: Sequence[GpuChoice], used: Sequence[int], says: str) -> tuple[GpuChoice, ...]:
    only_split = len(visible) == 1 and visible[0].mig_uuid is None and visible[0].gpu.mig_uuids
    if only_split:
        return tuple(visible) if used else ()
    if used and not visible:
        raise SourceUnavailable(
            f"{says} no GPU", "name GPUs in devices= to measure them all the same"
        )
    missing = [ordinal for ordinal in used if not 0 <= ordinal < len(visible)]
    if missing:
        raise SourceUnavailable(
            f"CUDA device {missing[0]} is in use, but {says} {len(visible)} GPUs",
            f"check {MASK_VARIABLE}, or name the GPUs in devices= (nvidia-smi -L lists them)",
        )
    return tuple(visible[ordinal] for ordinal in used)


def _of_driver(bare_uuid: str, inventory: Sequence[GpuInfo]) -> GpuChoice:
    for gpu in inventory:
        if gpu.uuid.lower() == f"gpu-{bare_uuid}":
            return GpuChoice(gpu=gpu)
        for mig_uuid in gpu.mig_uuids:
            if mig_uuid.lower() == f"mig-{bare_uuid}":
                return GpuChoice(gpu=gpu, mig_uuid=mig_uuid)
    raise SourceUnavailable(
        f"CUDA uses a GPU with UUID {bare_uuid}, which NVML does not list: "
        f"it lists {_listing(inventory)}",
        "in a container, hand the same GPUs to CUDA and to NVML (docker run --gpus)",
    )
