"""AMD GPUs: graphics cards, an accelerator, an APU, and a card whose counter amdsmi knows."""

import os
import sys
from dataclasses import replace
from typing import Any, Final

from energy_callbacks.sensing.sources.protocol import Source
from energy_callbacks.sensing.sources.sysfs.amd_gpu import AMD_GPU
from tests.sensing.sources.conformance.case import (
    NO_TEXT,
    FileLab,
    family_case,
    family_sources,
)
from tests.sensing.sources.fake_amdsmi import AmdSmiLibraryException, Library
from tests.sensing.sources.trees import LiveDevice, Tree, amd_gpu, number
from tests.sensing.sources.trees.amd_gpus import GIB, UNIT_J, apu, mi300x, navi

_CARD: Final = {
    "memory_used": GIB,
    "utilisation": 0.5,
    "temperature": 73.0,
    "clock": 2.304e9,
    "power_limit": 339.0,
}
_ACCELERATOR: Final = {
    "memory_used": 80 * GIB,
    "utilisation": 0.97,
    "memory_utilisation": 0.41,
    "temperature": 71.0,
    "clock": 2.1e9,
    "memory_clock": 1.3e9,
    "power_limit": 750.0,
}
_APU: Final = {
    "memory_used": 30.25 * GIB,
    "utilisation": 0.6,
    "temperature": 58.0,
    "clock": 2.9e9,
}
_ZERO: Final = {"zero": lambda right: b"0\n" if len(right) < 64 else right[:16] + bytes(16)}


def _amdsmi_card(tree: Tree, index: int = 0, *, start_j: float = 0.0) -> LiveDevice:
    """Add a card without a counter in its files; the library has the one in ``amdsmi_energy``."""
    card = amd_gpu(tree, index)
    energy = number("amdsmi_energy", "energy", UNIT_J, wrap=2**32 - 1)
    return replace(card, files=(*card.files, energy), start_j=start_j)


class _LibraryOfFiles(Library):
    """The module ``amdsmi``, whose counters are files; a handle is the folder of a device."""

    def amdsmi_get_energy_count(self, handle: str) -> dict[str, Any]:
        try:
            number = os.open(f"{handle}/amdsmi_energy", os.O_RDONLY)
            with os.fdopen(number):
                value = os.pread(number, 64, 0).decode().strip()
        except OSError as error:
            raise AmdSmiLibraryException(str(error)) from error
        return {"energy_accumulator": int(value) if value.isdigit() else value}


def _amdsmi_sources(lab: FileLab) -> tuple[list[Source], list[str]]:
    folders = [lab.running.tree.root / live.folder for live in lab.live]
    library = _LibraryOfFiles(lab.clock, addresses={str(one): one.name for one in folders})
    lab.patch.setitem(sys.modules, "amdsmi", library)
    return family_sources(lab)


_AMDSMI: Final = family_case(
    AMD_GPU,
    _amdsmi_card,
    name="AMD amdsmi",
    gauges=_CARD,
    sources=_amdsmi_sources,
    has_library=True,
    no_values={name: NO_TEXT[name] for name in NO_TEXT if name != "negative"} | _ZERO,
)
CASES: Final = (
    *(
        family_case(
            AMD_GPU, make, name=f"AMD {make.__name__}", gauges=gauges, no_values=NO_TEXT | _ZERO
        )
        for make, gauges in ((amd_gpu, _CARD), (navi, _CARD), (mi300x, _ACCELERATOR), (apu, _APU))
    ),
    _AMDSMI,
)
