"""Describes NVIDIA Jetson boards, whose power monitors measure voltage and current of rails.

A rail is the supply of a part of the board. Most models have a rail that supplies all of it. On AGX
models, the rails of GPU, CPU and the rest do not overlap and add up to the power of the module.
Jetson Nano 2GB has no power monitors.

Rails that are not listed here are ignored, because it is not known whether they overlap with
others. Ignored on purpose are those of the carrier board, such as ``VDD_MUX``, and
``VDDQ_VDD2_1V8AO``, which is a part of ``VIN_SYS_5V0``.
"""

from collections.abc import Iterator
from dataclasses import replace
from os.path import relpath
from pathlib import Path
from typing import Final

from energy_callbacks.core.records import Device
from energy_callbacks.sensing.scopes import NAMED_MACHINE
from energy_callbacks.sensing.sources.sysfs.drm import text
from energy_callbacks.sensing.sources.sysfs.family import Family, FileSensor, FoundDevice
from energy_callbacks.sensing.sources.sysfs.hwmon import labelled

# Power monitors: INA3221, the name of its driver in Jetson Linux 32, and INA238 of Jetson Thor.
_CHIPS: Final = "ina3221x?|ina238"
# If NVML measures the power of the GPU too, its reading is used.
_GPU: Final = Device(key="{}", kind="gpu", scope="gpu", name="Jetson GPU ({})", parent="gpu0")
_RAILS: Final = {
    "VDD_IN|POM_5V_IN|5V_IN|VIN": Device(
        key="{}",
        kind="machine",
        scope="machine",
        name="Jetson board ({})",
        parent=NAMED_MACHINE,
    ),
    "GPU|VDD_GPU|VDD_SYS_GPU|POM_5V_GPU": _GPU,
    "VDD_GPU_SOC": replace(_GPU, notes=("this rail also supplies other parts of the chip",)),
    "VDD_CPU_GPU(?:_CV)?": replace(_GPU, notes=("this rail also supplies the CPU",)),
    (
        "CPU|VDD_CPU|VDD_SYS_CPU|POM_5V_CPU|VDD_CPU_CV|VDD_CPU_SOC_MSS"
        "|SOC|VDD_SOC|VDD_SYS_SOC|CV|SYS5V|VIN_SYS_5V0"
    ): Device(key="{}", kind="cpu", scope="host", name="Jetson processor ({})"),
    "VDDRQ|VDD_SYS_DDR": Device(key="{}", kind="dram", scope="host", name="Jetson memory ({})"),
}
_SENSORS: Final = (
    # Millivolts times milliamperes are microwatts.
    FileSensor(
        "power",
        ("in{channel}_input", "in_voltage{channel}_input"),
        1e-6,
        "Linux, hwmon/ina3221.rst; rails: NVIDIA Jetson Linux Developer Guide, Platform Power and "
        "Performance; bound assumed",
        times=("curr{channel}_input", "in_current{channel}_input"),
        relative_error=0.1,
    ),
    FileSensor("utilisation", ("{gpu}/device/load",), 1e-3, "NVIDIA nvgpu, os/linux/sysfs.c, load"),
    FileSensor("clock", ("{gpu}/cur_freq",), 1.0, "Linux, ABI/testing/sysfs-class-devfreq"),
    FileSensor(
        "temperature",
        ("{zone}/temp",),
        1e-3,
        "Linux, driver-api/thermal/sysfs-api.rst",
        missing=(-256e3,),  # the GPU is switched off
    ),
)


def _find(root: Path) -> Iterator[FoundDevice]:
    """Yield the rails of the board."""
    for device, chip, channel in labelled(root, _CHIPS, _RAILS):
        is_gpu = device.kind == "gpu"
        places = {name: relpath(folder, chip) for name, folder in _gpu_folders(root) if is_gpu}
        places["channel"] = channel
        yield FoundDevice(device=device, folder=chip, is_integrated=is_gpu, places=places)


def _gpu_folders(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the folders of the GPU's clock and of its thermal zone, if it has them."""
    for pattern in ("*.gpu", "*.g[pva]1[01]b", "gpu-gpc-0"):
        yield from (("gpu", one.resolve()) for one in root.glob(f"class/devfreq/{pattern}"))
    for folder in root.glob("class/thermal/thermal_zone*"):
        if text(folder / "type").lower() in ("gpu-therm", "gpu-thermal"):
            yield "zone", folder.resolve()


JETSON: Final = Family(
    name="Jetson",
    find=_find,
    sensors=_SENSORS,
    absence_fix="load the kernel module ina3221",
    covers="each rail: the board, the GPU, and other parts",
    included_kinds=("cpu", "dram"),
)
