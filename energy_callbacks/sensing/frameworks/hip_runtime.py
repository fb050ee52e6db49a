"""Whether this process computes on AMD cards, which no sensor of ours reads."""

from pathlib import Path
from typing import Final

_MAPS: Final = Path("/proc/self/maps")


def is_loaded(maps: Path = _MAPS) -> bool:
    """Whether a framework has loaded HIP's runtime, through which ROCm computes.

    There a framework's ``cuda:0`` is an AMD card, and ``CUDA_VISIBLE_DEVICES`` has the effect of
    ``HIP_VISIBLE_DEVICES`` (ROCm, "GPU isolation techniques"): neither says anything of NVIDIA's
    cards. Wheels rename the library's file, but keep the beginning of its name.
    """
    try:
        return "/libamdhip64" in maps.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux: unknown there
        return False
