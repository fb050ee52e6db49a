"""Finds the GPUs on which processes compute, in the files that the drivers of Linux write.

``/proc/PID/fdinfo`` describes each open file of a GPU (Linux, "DRM client usage stats").
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from energy_callbacks.sensing.sources.sysfs.drm import text

LEAST_BYTES: Final = 2**21
"""A process with less memory than this on an AMD GPU does not count as a user, unless it has used
an engine. A process that only lists its GPUs has some kilobytes on each; the first tensor needs
2 MiB (PyTorch, ``c10/cuda/CUDACachingAllocator.h``, ``kSmallBuffer``)."""
_ENGINE: Final = re.compile("drm-(engine-(?!capacity)|cycles-)")
_UNITS: Final = {"": 1, "KiB": 2**10, "MiB": 2**20}


def used_by(pid: int, proc: Path) -> set[str]:
    """Return the PCI addresses of the GPUs on which a process has computed.

    A GPU counts if the process has used one of its engines. The driver of AMD does not count the
    time of ROCm's kernels, so an AMD GPU also counts if the process has ``LEAST_BYTES`` of its
    memory.

    Args:
        pid: the process.
        proc: folder such as ``/proc``.
    """
    return {
        fields["drm-pdev"].lower()
        for fields in _clients(proc / str(pid))
        if "drm-pdev" in fields and _is_used(fields)
    }


def _clients(process: Path) -> Iterator[dict[str, str]]:
    """Yield the fields of each open file of a GPU.

    Duplicated descriptors are repeated, which has no effect, because nothing is summed.
    """
    try:
        numbers = [file.name for file in os.scandir(process / "fd") if _is_gpu(file)]
    except OSError:  # the process has ended, or belongs to another user
        return
    for number in numbers:
        lines = text(process / "fdinfo" / number).splitlines()
        yield {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _is_gpu(file: "os.DirEntry[str]") -> bool:
    try:
        # ``Path`` would take three times as long, and a process may have thousands of files.
        return os.readlink(file.path).startswith("/dev/dri/")  # noqa: PTH115
    except OSError:
        return False


def _is_used(fields: dict[str, str]) -> bool:
    has_computed = any(_ENGINE.match(name) and _number(fields[name]) > 0 for name in fields)
    return has_computed or _number(fields.get("drm-memory-vram", "")) >= LEAST_BYTES


def _number(value: str) -> int:
    """Return the number of a value such as ``4096 KiB`` in its base unit; 0 if there is none."""
    number, _, unit = value.partition(" ")
    return int(number) * _UNITS.get(unit.strip(), 1) if number.isdecimal() else 0


def descendants(pid: int, proc: Path) -> set[int]:
    """Return the pids of all living descendants of a process.

    Each thread has a list of its children (Linux, ``proc_pid_task(5)``), so that not all processes
    of the machine are read.

    Args:
        pid: the process.
        proc: folder such as ``/proc``.
    """
    try:
        threads = [thread.path for thread in os.scandir(proc / str(pid) / "task")]
    except OSError:  # the process has ended
        return set()
    lists = (text(Path(thread, "children")) for thread in threads)
    children = {int(child) for one in lists for child in one.split()}
    return children.union(*(descendants(child, proc) for child in children))
