"""Finds the energy counter in ``gpu_metrics``, a binary file of the driver of AMD GPUs.

The file is a C structure whose layout depends on two revision numbers in its header
(``kgd_pp_interface.h`` in ``drivers/gpu/drm/amd/include`` of Linux, structures ``gpu_metrics_v1_1``
to ``gpu_metrics_v1_8``). Layouts that are not known have no reading: 1.0 has a counter of 32 bits
at another place, 1.9 is a list of attributes, and 2.x and 3.x are of APUs, which have no counter.
"""

import struct
from typing import Final

from energy_callbacks.core.errors import ReadingMissed

JOULES: Final = 2.0**-16
"""One unit of the counter, J: "15.259uJ (2^-16) units" (comment in ``kgd_pp_interface.h``)."""

# structure_size (u16), format_revision (u8), content_revision (u8): struct metrics_table_header.
_HEADER: Final = struct.Struct("<HBB")
_COUNTER: Final = struct.Struct("<Q")
# Position of energy_accumulator, bytes, by format and content revision.
_POSITIONS: Final = {(1, content): 24 for content in (1, 2, 3, 4, 7, 8)} | {(1, 5): 88, (1, 6): 16}


def energy_units(content: bytes) -> int:
    """Return the energy counter in units of ``JOULES``; 0 or all ones if the GPU has none.

    Args:
        content: content of ``gpu_metrics``.

    Raises:
        ReadingMissed: if the content is cut off, or if its layout is not known.
    """
    if len(content) < _HEADER.size:
        raise ReadingMissed(f"it contains {len(content)} bytes, which is less than its header")
    size, *revision = _HEADER.unpack_from(content)
    position = _POSITIONS.get((revision[0], revision[1]))
    if position is None:
        layout = ".".join(map(str, revision))
        raise ReadingMissed(f"its layout has revision {layout}, which has no known energy counter")
    if len(content) < max(size, position + _COUNTER.size):
        raise ReadingMissed(f"it contains {len(content)} bytes of {size}")
    return int(_COUNTER.unpack_from(content, position)[0])
