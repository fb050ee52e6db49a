"""Finds the GPUs of all vendors except NVIDIA that a run uses, at its start and while it runs.

A GPU is used if the framework says so, or if this process or one of its descendants has computed on
it (``drm_clients``) or has memory on it (``rocm``). This initialises no device.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.core.guard import logger
from energy_callbacks.core.records import Channel, Reading
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.frameworks import hip_runtime, xpu_devices
from energy_callbacks.sensing.gpus import drm_clients, drm_gpus, level_zero, rocm
from energy_callbacks.sensing.gpus.drm_gpus import DrmGpu
from energy_callbacks.sensing.schedule import until_reading_s
from energy_callbacks.sensing.sources.protocol import DiscoveredSources
from energy_callbacks.sensing.sources.sysfs import families
from energy_callbacks.sensing.sources.sysfs.family import sysfs_root

_PROC: Final = Path("/proc")
_RUNTIMES: Final = {"hip": hip_runtime, "xpu": xpu_devices}
_ALL_THE_SAME: Final = "pass devices=[0] or devices='all' to measure GPUs anyway"


class UsedDrmGpus:
    """A source without readings, which finds the sources of the GPUs that this run uses.

    Args:
        clock: clock of the sources.
        gpus: all GPUs of the machine except NVIDIA's.
        used: names of the devices that the framework uses, such as ``hip:0`` or ``xpu:1``; empty if
            the run uses no GPU, ``None`` if not known.
        follow_children: whether GPUs of child processes are used by this run.
        takes_visible: whether all visible discrete GPUs count as used, because another program is
            measured.
        is_only: whether no other source looks for GPUs, so that this one reports if none is used.
    """

    def __init__(
        self,
        clock: Clock,
        gpus: Sequence[DrmGpu],
        used: Sequence[str] | None,
        *,
        follow_children: bool = True,
        takes_visible: bool = False,
        is_only: bool = False,
    ) -> None:
        self.name = " or ".join(dict.fromkeys(gpu.family.name for gpu in gpus))
        self._clock = clock
        self._gpus = gpus
        self._framework = used
        self._root = sysfs_root()
        self._follow_children = follow_children
        self._takes_visible = takes_visible
        self._is_only = is_only
        self._environment = dict(os.environ)
        self._used: set[DrmGpu] = set()
        self._refused: set[str] = set()
        self._looked_s = -math.inf
        self._found = DiscoveredSources()

    @property
    def interval_s(self) -> float:
        """Seconds to the next common reading moment (``schedule``)."""
        return until_reading_s(self._clock.monotonic_s())

    def open(self) -> Sequence[Channel]:
        """Report the visible GPUs; there are no channels.

        The report leaves out those that are measured later.

        Raises:
            SourceUnavailable: if the run uses no GPU.
        """
        if self._framework is not None and not self._framework:
            raise SourceUnavailable("this run uses no GPU", _ALL_THE_SAME)
        for gpu in self._visible():
            reason = f"{gpu.info.name}: visible to this run, but not used by it"
            self._report(gpu.info.key, reason, "")
        return ()

    def read(self) -> Sequence[Reading]:
        """Look for GPUs that the run has begun to use; there are no readings."""
        since_s, self._looked_s = self._looked_s, self._clock.monotonic_s()
        unused = [gpu for gpu in self._gpus if gpu not in self._used]
        if not unused:
            return ()
        is_first = since_s == -math.inf
        visible = self._visible() if self._takes_visible and is_first else ()
        addresses = self._of_framework() | self._of_processes()
        new = [gpu for gpu in unused if gpu.found.pci in addresses or gpu in visible]
        new = drm_gpus.with_meters(new, unused)
        self._used.update(new)
        sources = tuple(families.source_of(self._clock, gpu.family, gpu.found) for gpu in new)
        self._found = replace(self._found, sources=sources, since_s=since_s)
        return ()

    def finish(self) -> Sequence[Reading]:
        """Look a last time, and report if no GPU was ever in use."""
        self.read()
        if self._is_only and not self._used and not self._refused:
            self._report(self.name, "no GPU was seen in use by this run", _ALL_THE_SAME)
        return ()

    def found(self) -> DiscoveredSources:
        """See ``FindingSource``."""
        found, self._found = self._found, DiscoveredSources()
        return found

    def close(self) -> None:
        """See ``Source.close``."""

    def _report(self, name: str, reason: str, fix: str) -> None:
        entries = (*self._found.unavailable, (name, reason, fix))
        self._found = replace(self._found, unavailable=entries)

    def _visible(self) -> list[DrmGpu]:
        """Return the discrete GPUs that no mask hides."""
        intel = drm_gpus.intel(self._gpus)
        everything = {*rocm.visible({}, self._root), *level_zero.visible({}, intel)}
        hidden = everything.difference(self._order("hip"), self._order("xpu"))
        discrete = (gpu for gpu in self._gpus if not gpu.found.is_integrated)
        return [gpu for gpu in discrete if gpu.found.pci not in hidden]

    def _order(self, kind: str) -> Sequence[str]:
        """Return the PCI addresses of a framework's devices 0, 1, ..., by what masks leave."""
        if kind == "hip":
            return rocm.visible(self._environment, self._root)
        return level_zero.visible(self._environment, drm_gpus.intel(self._gpus))

    def _of_framework(self) -> set[str]:
        """Return the PCI addresses of the GPUs that the framework uses."""
        found: set[str] = set()
        addresses = {gpu.found.pci for gpu in self._gpus}
        devices = (name.partition(":") for name in self._framework or ())
        for kind, _, ordinal in devices:
            if kind not in _RUNTIMES:
                continue
            order = _RUNTIMES[kind].pci_addresses() or self._order(kind)
            address = dict(enumerate(order)).get(int(ordinal), "an unknown address")
            if address in addresses:
                found.add(address)
            else:
                where = f"the GPU at {address} has no sensors in {self._root}"
                self._refuse(f"device {kind}:{ordinal} is in use, but {where}")
        return found

    def _refuse(self, reason: str) -> None:
        """Report once that a GPU in use cannot be measured."""
        if reason not in self._refused:
            self._refused.add(reason)
            self._report(self.name, reason, "name the GPUs in devices=")
            logger.warning("the energy of GPUs is not measured: %s", reason)

    def _of_processes(self) -> set[str]:
        """Return the PCI addresses of the GPUs that this process and its descendants use."""
        pids = {os.getpid()}
        if self._follow_children:
            pids |= drm_clients.descendants(os.getpid(), _PROC)
        of_rocm = rocm.processes(self._root)
        used = [drm_clients.used_by(pid, _PROC) | of_rocm.get(pid, set()) for pid in pids]
        return set().union(*used)
