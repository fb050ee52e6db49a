"""The energy counter in ``gpu_metrics``, against the structures of the kernel."""

import struct

import pytest

from energy_callbacks.core.errors import ReadingMissed
from energy_callbacks.sensing.sources.sysfs.gpu_metrics import JOULES, energy_units
from tests.sensing.sources.trees.gpu_metrics import FIELDS, gpu_metrics


@pytest.mark.parametrize("revision", FIELDS)
def test_every_known_layout_has_its_counter_where_the_kernel_writes_it(
    revision: tuple[int, int],
) -> None:
    """100 J are 6 553 600 units in each layout, whatever the fields around it hold."""
    assert energy_units(gpu_metrics(revision, energy_accumulator=6_553_600)) * JOULES == 100.0


def test_a_counter_above_32_bits_is_read_whole() -> None:
    """CDNA counts in 64 bits: 10 MJ do not fit into 32 bits."""
    assert energy_units(gpu_metrics((1, 6), energy_accumulator=10**7 * 2**16)) * JOULES == 1e7


@pytest.mark.parametrize("revision", [(1, 0), (1, 9), (2, 1), (2, 4), (3, 0), (0, 0)])
def test_an_unknown_layout_has_no_counter(revision: tuple[int, int]) -> None:
    """Other layouts are refused, with their revision, and not read at a guessed place."""
    content = struct.pack("<HBB", 256, *revision) + b"\x01" * 252
    with pytest.raises(ReadingMissed, match=f"{revision[0]}.{revision[1]}"):
        energy_units(content)


@pytest.mark.parametrize("length", [0, 3, 4, 31])
def test_a_file_that_is_cut_off_is_missed(length: int) -> None:
    """Less than a whole structure is not read."""
    content = gpu_metrics((1, 4), energy_accumulator=5)[:length]
    with pytest.raises(ReadingMissed, match=f"contains {length} bytes"):
        energy_units(content)
