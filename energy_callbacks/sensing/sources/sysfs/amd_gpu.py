"""Describes AMD GPUs, whose driver ``amdgpu`` shows their sensors in files that all users may read.

APUs share chip and memory with a CPU, and their power includes that of the CPU. On an MI250, each
of the two dies is a GPU, but only the first measures: the power and energy of both. An MI300 that
is divided into partitions measures all partitions together.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from energy_callbacks.core.records import Device, Quantity
from energy_callbacks.sensing.sources.sysfs.drm import cards, first_text, text, whole
from energy_callbacks.sensing.sources.sysfs.family import Family, FileSensor, FoundDevice
from energy_callbacks.sensing.sources.sysfs.gpu_metrics import JOULES, energy_units

_VENDOR: Final = "0x1002"
# PCI device ids (amdgpu_drv.c): MI250X and MI250, which have two dies, and MI300A, an accelerator
# with CPU cores in the same package.
_TWO_DIES: Final = ("0x7408", "0x740c")
_MI300A: Final = "0x74a0"
# Names of cards by device and revision id; part of the package libdrm.
_NAMES: Final = Path("/usr/share/libdrm/amdgpu.ids")

_PM: Final = "Linux, Documentation/gpu/amdgpu/thermal.rst: "
_MEMORY: Final = "Linux, Documentation/gpu/amdgpu/driver-misc.rst, memory information"
# Bound of the relative error of power and energy. AMD states none: the bound is assumed.
_ERROR: Final = 0.1
# Unit of the load files, and the value by which the firmware says that it has none: percent, and a
# field of 16 bits that is all ones.
_PERCENT: Final = 0.01
_NO_LOAD: Final = (65535.0,)


def _gauge(quantity: Quantity, files: tuple[str, ...], unit: float, citation: str) -> FileSensor:
    return FileSensor(quantity=quantity, kind="gauge", files=files, unit=unit, citation=citation)


_POWER: Final = replace(
    _gauge(
        "power",
        ("hwmon/hwmon*/power1_average", "hwmon/hwmon*/power1_input"),
        1e-6,
        _PM + "power1_average is a mean, power1_input instantaneous; bound assumed",
    ),
    missing=(0.0,),
    relative_error=_ERROR,
)
_ENERGY: Final = FileSensor(
    quantity="energy",
    kind="counter",
    files=("gpu_metrics",),
    unit=JOULES,
    parse=energy_units,
    # RDNA fills the field from a counter of 32 bits (EnergyAccumulator in smu11_driver_if_*.h and
    # smu13_driver_if_v13_0_*.h), CDNA from one of 64 bits.
    wrap=2.0**32 - 1.0,
    # The driver asks the firmware at most once in a millisecond (smu_cmn_get_metrics_table).
    period_s=0.001,
    relative_error=_ERROR,
    # An idle GPU of 5 W counts 300 000 units per second. A counter that stands still has stopped,
    # as on some MI210 (ROCm/rocm_smi_lib issue 180).
    stale_s=5.0,
    is_checked=True,
    citation="Linux, kgd_pp_interface.h, energy_accumulator; bound assumed",
)
_MEMORY_USED: Final = _gauge("memory_used", ("mem_info_vram_used",), 1.0, _MEMORY)
_SENSORS: Final = (
    _ENERGY,
    _POWER,
    _MEMORY_USED,
    replace(
        _gauge("utilisation", ("gpu_busy_percent",), _PERCENT, _PM + "gpu_busy_percent"),
        missing=_NO_LOAD,
    ),
    replace(
        _gauge("memory_utilisation", ("mem_busy_percent",), _PERCENT, _PM + "mem_busy_percent"),
        missing=_NO_LOAD,
    ),
    # Number 1 always has the label edge, number 2 has junction: the hottest place on the chip
    # (amdgpu_hwmon_show_temp_label in amdgpu_pm.c).
    _gauge(
        "temperature",
        ("hwmon/hwmon*/temp2_input", "hwmon/hwmon*/temp1_input"),
        1e-3,
        _PM + "temp2_input is junction, temp1_input is edge",
    ),
    _gauge("clock", ("hwmon/hwmon*/freq1_input",), 1.0, _PM + "freq1_input, graphics clock"),
    _gauge("memory_clock", ("hwmon/hwmon*/freq2_input",), 1.0, _PM + "freq2_input, memory clock"),
    replace(
        _gauge("power_limit", ("hwmon/hwmon*/power1_cap",), 1e-6, _PM + "power1_cap"),
        missing=(0.0,),
    ),
)


_SENSORS_OF_APU: Final = tuple(
    replace(row, plus=("mem_info_gtt_used",)) if row is _MEMORY_USED else row for row in _SENSORS
)


def _find(root: Path) -> Iterator[FoundDevice]:
    """Yield the AMD GPUs below a folder such as ``/sys``, in the order of their PCI addresses."""
    first_die: str | None = None
    for pci, folder in cards(root, _VENDOR):
        has_two_dies = text(folder / "device") in _TWO_DIES
        if has_two_dies and first_text(folder, "hwmon/hwmon*/power1_cap") == "0":
            yield _second_die(pci, folder, first_die)
            continue
        first_die = pci if has_two_dies else first_die
        is_integrated = _is_integrated(folder)
        yield FoundDevice(
            device=_device(pci, folder),
            folder=folder,
            pci=pci,
            is_integrated=is_integrated,
            sensors=_SENSORS_OF_APU if is_integrated else (),
        )


def _is_integrated(folder: Path) -> bool:
    """Return whether a GPU is part of an APU.

    Only APUs have the voltage ``vddnb`` (hwmon_attributes_visible in amdgpu_pm.c); MI300A has not.
    """
    is_apu = first_text(folder, "hwmon/hwmon*/in1_label") == "vddnb"
    return is_apu or text(folder / "device") == _MI300A


def _second_die(pci: str, folder: Path, first: str | None) -> FoundDevice:
    """Return the second die of a card.

    It has a power limit of 0, because "power limit and power data are available only from the
    primary die" (aldebaran_get_power_limit in aldebaran_ppt.c). That the first die is the one
    before it in the order of PCI addresses is assumed, as it is on nodes of Frontier (OLCF user
    guide).
    """
    where = first or "another GPU"
    note = f"second die of a card: power and energy of the whole card are measured on {where}"
    device = _device(pci, folder)
    return FoundDevice(
        device=replace(device, notes=(*device.notes, note)),
        folder=folder,
        pci=pci,
        excluded=frozenset({"power", "energy", "power_limit"}),
        energy_pci=first,
    )


def _device(pci: str, folder: Path) -> Device:
    limit_uw = whole(first_text(folder, "hwmon/hwmon*/power1_cap"))
    memory = (whole(text(folder / f"mem_info_{kind}_total")) for kind in _memory_kinds(folder))
    number = text(folder / "unique_id")
    return Device(
        key=f"gpu-{pci}",
        kind="gpu",
        scope="gpu",
        name=_name(folder),
        uuid=f"GPU-{number}" if number else pci,
        notes=_notes(folder),
        limit_w=limit_uw / 1e6 or None,
        memory_bytes=sum(memory) or None,
    )


def _memory_kinds(folder: Path) -> tuple[str, ...]:
    """Return the kinds of memory that programs use; GTT is memory of the CPU."""
    return ("vram", "gtt") if _is_integrated(folder) else ("vram",)


def _notes(folder: Path) -> tuple[str, ...]:
    notes = []
    if _is_integrated(folder):
        notes.append("power includes the CPU, which is on the same chip")
    partition = text(folder / "current_compute_partition")
    if partition not in ("", "SPX"):
        notes.append(
            f"divided into partitions ({partition}): power and energy are of the whole GPU"
        )
    return tuple(notes)


def _name(folder: Path) -> str:
    """Return the product name, or the device id if no name is known."""
    ids = [text(folder / kind).removeprefix("0x").upper() for kind in ("device", "revision")]
    rows = ([part.strip() for part in line.split(",", 2)] for line in text(_NAMES).splitlines())
    known = next((name for *row, name in rows if row == ids), "")
    return text(folder / "product_name") or known or f"AMD GPU {ids[0]}"


AMD_GPU: Final = Family(
    name="AMD GPU",
    find=_find,
    sensors=_SENSORS,
    permission_fix=(
        "the driver amdgpu lets all users read these files: see whether a container or a security "
        "module hides /sys/class/drm"
    ),
    absence_fix=(
        "load the driver amdgpu with power management (its default, amdgpu.dpm=-1); virtual "
        "functions of a divided GPU have no sensors"
    ),
)
