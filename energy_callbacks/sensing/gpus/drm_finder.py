"""Finds the GPUs of all vendors except NVIDIA that a run uses.

A GPU is used if the framework says so, or if this process or one of its descendants has computed on
it (``drm_clients``) or has memory on it (``rocm``).
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.frameworks import hip_runtime, xpu_devices
from energy_callbacks.sensing.gpus import drm_clients, drm_gpus, level_zero, rocm
from energy_callbacks.sensing.gpus.devices import GpuInfo
from energy_callbacks.sensing.gpus.drm_gpus import DrmGpu
from energy_callbacks.sensing.gpus.used_gpus import KnownUse, Refuse
from energy_callbacks.sensing.sources.protocol import Source
from energy_callbacks.sensing.sources.sysfs.family import sysfs_root
from energy_callbacks.sensing.sources.sysfs.source import SysfsSource

_PROC: Final = Path("/proc")
_RUNTIMES: Final = {"hip": hip_runtime, "xpu": xpu_devices}


class DrmFinder:
    """A ``GpuFinder`` of the GPUs whose sensors are files.

    Args:
        clock: clock of the sources.
        gpus: all GPUs of the machine except NVIDIA's.
        known: what is known about the GPUs in use.
    """

    def __init__(self, clock: Clock, gpus: Sequence[DrmGpu], known: KnownUse) -> None:
        self.name = " or ".join(dict.fromkeys(gpu.family.name for gpu in gpus))
        self._clock = clock
        self._gpus = gpus
        self._known = known
        self._root = sysfs_root()
        self._environment = dict(os.environ)
        self._visible: Sequence[GpuInfo] = ()
        self._runtime_orders: dict[str, Sequence[str]] = {}

    def open(self, at_close: ExitStack) -> None:
        """See ``GpuFinder``; there is nothing to open."""

    def visible(self) -> Sequence[GpuInfo]:
        """Return the discrete GPUs that no mask hides."""
        intel = drm_gpus.intel(self._gpus)
        everything = {*rocm.visible({}, self._root), *level_zero.visible({}, intel)}
        hidden = everything.difference(self._masked("hip"), self._masked("xpu"))
        discrete = (gpu for gpu in self._gpus if not gpu.found.is_integrated)
        self._visible = [gpu.info for gpu in discrete if gpu.found.pci not in hidden]
        return self._visible

    def used(self, measured: AbstractSet[GpuInfo], refuse: Refuse) -> Mapping[GpuInfo, Source]:
        """See ``GpuFinder``."""
        unused = [gpu for gpu in self._gpus if gpu.info not in measured]
        if not unused:
            return {}
        visible = self._visible if self._known.takes_visible else ()
        addresses = self._of_framework(refuse) | self._of_processes()
        new = [gpu for gpu in unused if gpu.found.pci in addresses or gpu.info in visible]
        return {
            gpu.info: SysfsSource(self._clock, gpu.family, gpu.found)
            for gpu in drm_gpus.with_meters(new, unused)
        }

    def _masked(self, kind: str) -> Sequence[str]:
        """Return the PCI addresses of a framework's devices 0, 1, ..., by what masks leave."""
        if kind == "hip":
            return rocm.visible(self._environment, self._root)
        return level_zero.visible(self._environment, drm_gpus.intel(self._gpus))

    def _order(self, kind: str) -> Sequence[str]:
        """Return the PCI addresses of a framework's devices; its runtime is asked until it knows.

        From then on they stay the same.
        """
        if kind not in self._runtime_orders and (order := _RUNTIMES[kind].pci_addresses()):
            self._runtime_orders[kind] = order
        return self._runtime_orders.get(kind) or self._masked(kind)

    def _of_framework(self, refuse: Refuse) -> set[str]:
        """Return the PCI addresses of the GPUs that the framework uses."""
        found: set[str] = set()
        addresses = {gpu.found.pci for gpu in self._gpus}
        for kind in _RUNTIMES:
            for ordinal in self._known.ordinals(kind):
                address = dict(enumerate(self._order(kind))).get(ordinal, "an unknown address")
                if address in addresses:
                    found.add(address)
                else:
                    where = f"the GPU at {address} has no sensors in {self._root}"
                    reason = f"device {kind}:{ordinal} is in use, but {where}"
                    refuse(SourceUnavailable(reason, "name the GPUs in devices="))
        return found

    def _of_processes(self) -> set[str]:
        """Return the PCI addresses of the GPUs that this process and its descendants use."""
        pids = {os.getpid()}
        if self._known.follow_children:
            pids |= drm_clients.descendants(os.getpid(), _PROC)
        return _used_by(pids, self._root)


def keys_used_by(pids: Iterable[int]) -> set[str]:
    """Return the keys of the GPUs, except NVIDIA's, on which processes compute now."""
    addresses = _used_by(pids, sysfs_root())
    gpus = drm_gpus.inventory(sysfs_root())
    used = drm_gpus.with_meters([gpu for gpu in gpus if gpu.found.pci in addresses], gpus)
    return {gpu.info.key for gpu in used}


def _used_by(pids: Iterable[int], root: Path) -> set[str]:
    """Return the PCI addresses of the GPUs, except NVIDIA's, that processes use."""
    of_rocm = rocm.processes(root)
    return set().union(*(drm_clients.used_by(pid, _PROC) | of_rocm.get(pid, set()) for pid in pids))
