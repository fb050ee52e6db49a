"""Describes AMD GPUs, whose driver ``amdgpu`` shows their sensors in files that all users may read.

APUs share chip and memory with a CPU, and their power includes that of the CPU. On an MI250, each
of the two dies is a GPU, but only the first measures power and energy: those of both dies. An MI300
that is divided into partitions measures all partitions together.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from energy_callbacks.core.records import Device
from energy_callbacks.sensing.sources import amdsmi
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

_DOCUMENT: Final = "Linux, gpu/amdgpu/thermal.rst"
# Bound of the relative error of power and energy. AMD states none: the bound is assumed.
_ERROR: Final = 0.1
# Value of a load that the firmware does not have: a field of 16 bits that is all ones.
_NO_LOAD: Final = (65535.0,)


_SENSORS: Final = (
    FileSensor(
        "energy",
        ("gpu_metrics",),
        JOULES,
        "Linux, kgd_pp_interface.h, energy_accumulator; error assumed",
        kind="counter",
        parse=energy_units,
        # The second die of an MI250 has 0 (aldebaran_get_gpu_metrics). Other GPUs without a counter
        # have all ones, in 64 bits (smu_cmn_init_soft_gpu_metrics in smu_cmn.c) or, as RDNA 3 and
        # 4, in 32 bits (smu_v13_0_7_ppt.c and smu_v14_0_2_ppt.c).
        missing=(0.0,),
        # RDNA fills the field from a counter of 32 bits (EnergyAccumulator in smu11_driver_if_*.h
        # and smu13_driver_if_v13_0_*.h), CDNA from one of 64 bits.
        wrap=2.0**32 - 1.0,
        # The driver asks the firmware at most once in a millisecond (smu_cmn_get_metrics_table).
        period_s=0.001,
        relative_error=_ERROR,
        # An idle GPU of 5 W counts 300 000 units per second. A counter that stands still has
        # stopped, as on some MI210 (ROCm/rocm_smi_lib issue 180).
        stale_s=5.0,
        is_checked=True,
    ),
    FileSensor(
        "power",
        # The first is a mean over a time that is not documented, the second is instantaneous.
        ("hwmon/hwmon*/power1_average", "hwmon/hwmon*/power1_input"),
        1e-6,
        f"{_DOCUMENT}; error and period assumed",
        missing=(0.0,),
        # "Fastest SMU FW sample time is 100 ms" (amd_smi.cc of amdsmi, about the same firmware).
        period_s=0.1,
        relative_error=_ERROR,
    ),
    # Linux, gpu/amdgpu/driver-misc.rst. APUs also use GTT, which is memory of the CPU.
    FileSensor(
        "memory_used", ("mem_info_vram_used",), 1.0, _DOCUMENT, plus=("mem_info_{apu}_used",)
    ),
    FileSensor("utilisation", ("gpu_busy_percent",), 0.01, _DOCUMENT, missing=_NO_LOAD),
    FileSensor("memory_utilisation", ("mem_busy_percent",), 0.01, _DOCUMENT, missing=_NO_LOAD),
    # Number 2 always has the label junction, the hottest place on the chip, and number 1 has edge
    # (amdgpu_hwmon_show_temp_label in amdgpu_pm.c).
    FileSensor(
        "temperature", ("hwmon/hwmon*/temp2_input", "hwmon/hwmon*/temp1_input"), 1e-3, _DOCUMENT
    ),
    FileSensor("clock", ("hwmon/hwmon*/freq1_input",), 1.0, _DOCUMENT),
    FileSensor("memory_clock", ("hwmon/hwmon*/freq2_input",), 1.0, _DOCUMENT),
    FileSensor("power_limit", ("hwmon/hwmon*/power1_cap",), 1e-6, _DOCUMENT, missing=(0.0,)),
)


def _find(root: Path) -> Iterator[FoundDevice]:
    """Yield the AMD GPUs below a folder such as ``/sys``, in the order of their PCI addresses."""
    first_die: str | None = None
    for pci, folder in cards(root, _VENDOR):
        found = _found(pci, folder)
        if text(folder / "device") in _TWO_DIES:
            if first_text(folder, "hwmon/hwmon*/power1_cap") == "0":
                found = _second_die(found, first_die)
            else:
                first_die = pci
        yield found


def _found(pci: str, folder: Path) -> FoundDevice:
    is_integrated = _is_integrated(folder)
    memory = [text(folder / f"mem_info_{kind}_total") for kind in ("vram", "gtt")]
    number = text(folder / "unique_id")
    device = Device(
        key=f"gpu-{pci}",
        kind="gpu",
        scope="gpu",
        name=_name(folder),
        uuid=f"GPU-{number}" if number else pci,
        notes=tuple(_notes(folder, is_integrated=is_integrated)),
        memory_bytes=sum(map(whole, memory if is_integrated else memory[:1])) or None,
    )
    return FoundDevice(
        device=device,
        folder=folder,
        pci=pci,
        is_integrated=is_integrated,
        places={"apu": "gtt"} if is_integrated else {},
    )


def _is_integrated(folder: Path) -> bool:
    """Return whether a GPU is part of an APU.

    Only APUs have the voltage ``vddnb`` (hwmon_attributes_visible in amdgpu_pm.c); MI300A has not.
    """
    is_apu = first_text(folder, "hwmon/hwmon*/in1_label") == "vddnb"
    return is_apu or text(folder / "device") == _MI300A


def _second_die(found: FoundDevice, first: str | None) -> FoundDevice:
    """Return the second die of a card, which has no sensors of power.

    Its power and its power limit are 0 or cannot be read, and its energy is 0 (aldebaran_ppt.c:
    valid power data is available only from the primary die). It is assumed that the first die is
    the one before it in the order of PCI addresses, as on the nodes of Frontier (OLCF user guide).
    """
    where = first or "another GPU"
    note = f"second die of a card: power and energy of the whole card are measured on {where}"
    device = replace(found.device, scope=None, notes=(*found.device.notes, note))
    return replace(found, device=device, energy_pci=first)


def _notes(folder: Path, *, is_integrated: bool) -> Iterator[str]:
    if is_integrated:
        yield "power includes the CPU, which is on the same chip"
    partition = text(folder / "current_compute_partition")
    if partition not in ("", "SPX"):
        yield f"divided into partitions ({partition}): power and energy are of the whole GPU"


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
    library=amdsmi.sensors,
    absence_fix=(
        "load the driver amdgpu with power management (its default, amdgpu.dpm=-1); virtual "
        "functions of a divided GPU have no sensors"
    ),
    covers="the whole card: both dies of an MI250, the CPU too in an APU or MI300A",
)
