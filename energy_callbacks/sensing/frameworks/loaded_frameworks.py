"""Finds frameworks and runtimes that this process uses, without initialising any of them.

An *awake* framework has initialised its devices. Most public functions that concern devices would
initialise them, which takes all memory of all cards (TensorFlow) or breaks a later fork.
"""

import ctypes
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

_MAPS: Final = Path("/proc/self/maps")
# Windows has neither the flags nor libraries of these names.
_ONLY_LOADED: Final[int] = getattr(os, "RTLD_NOLOAD", 0) | getattr(os, "RTLD_NOW", 0)


def loaded_library(path: str) -> ctypes.CDLL | None:
    """Return a library if this process has loaded it, otherwise ``None``."""
    try:
        return ctypes.CDLL(path, mode=_ONLY_LOADED)
    except OSError:
        return None


def is_hip_loaded(maps: Path = _MAPS) -> bool:
    """Return whether this process has loaded HIP, AMD's counterpart of the CUDA runtime.

    In such a process PyTorch's ``cuda:0`` is an AMD card, and ``CUDA_VISIBLE_DEVICES``
    selects AMD cards, as ``HIP_VISIBLE_DEVICES`` does (ROCm, "GPU isolation techniques").
    """
    return hip_library(maps) is not None


def hip_library(maps: Path = _MAPS) -> str | None:
    """Return the path of the HIP library that this process has loaded; ``None`` if there is none.

    The end of the library's file name differs between wheels, the beginning does not.
    """
    try:
        text = maps.read_text(encoding="utf-8", errors="replace")
    except OSError:  # only Linux has this file
        return None
    found = re.search(r"/\S*/libamdhip64.*", text)
    return found[0] if found else None


def awake_torch() -> Any:
    """Return the module ``torch`` if it has initialised CUDA, otherwise ``None``."""
    torch = sys.modules.get("torch")
    is_awake = "torch.cuda" in sys.modules and torch and torch.cuda.is_initialized()
    return torch if is_awake else None


def awake_tensorflow() -> Any:
    """Return the module ``tensorflow`` if its context is initialised, otherwise ``None``."""
    eager = sys.modules.get("tensorflow.python.eager.context")
    context = eager.context_safe() if eager is not None else None
    # Most public functions about devices initialise the context; this attribute does not.
    is_awake = context is not None and context._context_handle is not None  # noqa: SLF001
    return sys.modules.get("tensorflow") if is_awake else None


def awake_jax() -> Any:
    """Return the module ``jax`` if its backends are initialised, otherwise ``None``."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    is_awake = bridge is not None and bridge.backends_are_initialized()
    return sys.modules.get("jax") if is_awake else None
