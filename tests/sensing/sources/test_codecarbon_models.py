"""The models of CPU and memory against the installed CodeCarbon."""

import platform

import numpy as np
import pytest
from codecarbon.core.cpu import TDP
from codecarbon.external.ram import RAM

from energy_callbacks.sensing import codecarbon_tables
from energy_callbacks.sensing.sources import codecarbon_models
from energy_callbacks.sensing.sources.codecarbon_models import memory_power_w, tdp_w

# Names as Linux shows them, some of them ambiguous or not in the table.
LINUX = (
    "Intel(R) Xeon(R) Platinum 8280 CPU @ 2.70GHz",
    "Intel(R) Xeon(R) Platinum 8480C",
    "Intel(R) Xeon(R) Processor @ 2.90GHz",
    "12th Gen Intel(R) Core(TM) i7-12700K",
    "AMD EPYC 7763 64-Core Processor",
    "AMD EPYC",
    "Neoverse-N1",
    "foo_bar Xeon",
    "",
)


def variants(name: str) -> tuple[str, ...]:
    """Return other names of a CPU in the table."""
    short = " ".join(name.split()[:2])
    marked = name.replace("Intel ", "Intel(R) ").replace("Xeon", "Xeon(R)")
    return name, name.lower(), short, f"{name} 16-Core Processor", f"{marked} CPU @ 2.70GHz"


def test_every_cpu_is_found_as_codecarbon_finds_it() -> None:
    """A sample of the table in several spellings, and names as Linux shows them."""
    names = [name for name, _ in codecarbon_tables.cpu_rows()]
    sample = np.random.default_rng(0).choice(names, 6, replace=False).tolist()
    theirs = TDP.__new__(TDP)
    found = [name for one in sample for name in variants(one)]
    for name in (*found, *LINUX):
        expected = theirs._get_cpu_power_from_registry(name)
        assert codecarbon_models.tdp_w.__wrapped__(name) == expected, name


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_memory_is_as_codecarbon_computes_it(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    """For every size up to 5 TiB, and for both kinds of modules."""
    monkeypatch.setattr(platform, "machine", lambda: machine)
    theirs = RAM()
    for size_gib in np.geomspace(0.5, 5000.0, 2000).tolist():
        assert memory_power_w(size_gib) == pytest.approx(theirs._calculate_ram_power(size_gib))


def test_a_cpu_that_is_not_in_the_table_is_not_known() -> None:
    """No name of the table is similar to this one."""
    assert tdp_w("Acme Thinker 9000") is None
