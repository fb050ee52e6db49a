"""CPUs: RAPL's files, and the same counters as perf events."""

import os
import struct
from functools import partial
from types import SimpleNamespace
from typing import Final

from energy_callbacks.sensing.sources import perf_energy
from energy_callbacks.sensing.sources.perf_energy import PerfEnergySource
from energy_callbacks.sensing.sources.protocol import Source
from energy_callbacks.sensing.sources.rapl import RaplSource
from tests.sensing.sources.conformance.case import FileCase, FileLab
from tests.sensing.sources.trees import LiveDevice, LiveFile, State, Tree, rapl_package

_PMU: Final = "bus/event_source/devices/power"
# Joules of one unit (arch/x86/events/rapl.c), and number of the event ``energy-pkg``.
_UNIT_J: Final = 2.0**-32
_PACKAGE: Final = 2


def _rapl(lab: FileLab) -> tuple[list[Source], list[str]]:
    """Return one source for all packages."""
    zones = lab.running.tree.root / "class/powercap"
    lab.place = str(zones)
    return [RaplSource(lab.clock, zones)], [f"cpu{index}" for index, _ in enumerate(lab.live)]


def _event(tree: Tree, index: int = 0, *, start_j: float = 0.0) -> LiveDevice:
    """Add a package; the kernel counts its energy in a file, from 0."""
    cpus = ",".join(str(cpu) for cpu in range(index + 1))
    scale = {"events/energy-pkg": f"event={_PACKAGE:#x}", "events/energy-pkg.scale": _UNIT_J}
    tree.write({"type": 29, "cpumask": cpus} | scale, _PMU)

    def count(state: State) -> bytes:
        return struct.pack("=Q", round((state.energy_j - start_j) / _UNIT_J))

    file = LiveFile(path=str(_PACKAGE), content=count, quantity="energy", unit=_UNIT_J)
    return LiveDevice(folder=f"events/{index}", files=(file,), start_j=start_j)


def _perf(lab: FileLab) -> tuple[list[Source], list[str]]:
    """Return one source for all packages; opening an event opens its file."""
    root = lab.running.tree.root
    lab.place = str(root / _PMU)

    def open_event(kind: int, config: int, cpu: int) -> int:
        return os.open(root / f"events/{cpu}/{config}", os.O_RDONLY)

    calls = SimpleNamespace(read=partial(_read_event), strerror=os.strerror)
    lab.patch.setattr(perf_energy, "open_event", open_event)
    lab.patch.setattr(perf_energy, "os", calls)
    return [PerfEnergySource(lab.clock, root)], [f"cpu{index}" for index, _ in enumerate(lab.live)]


def _read_event(descriptor: int, size: int) -> bytes:
    """Read an event, which always returns its present count."""
    return os.pread(descriptor, size, 0)


CASES: Final = (
    FileCase(
        name="rapl",
        source=RaplSource,
        make=rapl_package,
        sources=_rapl,
        scope="host",
        fixes={"missing": "intel_rapl_msr", "permission": "energy_uj = 0444"},
        back_s=6.0,
    ),
    FileCase(
        name="perf",
        source=PerfEnergySource,
        make=_event,
        sources=_perf,
        scope="host",
        no_values={"error state": lambda _: b""},
        # If there are no events, discovery shows what can be done for RAPL's files.
        fixes={"missing": "", "permission": "kernel.perf_event_paranoid=0"},
        back_s=6.0,
        impossible={
            "wrap": "the kernel counts in 64 bits",
            "reset": "the kernel adds up the increases of the register",
            "no value at the start": "an event counts from 0",
            "unplugged": "an open event stays until it is closed",
        },
    ),
)
