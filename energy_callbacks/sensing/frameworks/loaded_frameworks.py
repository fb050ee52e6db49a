"""Frameworks that have devices in use in this process, without initialising any of them.

Most public calls on devices initialise a framework: it takes all memory of all cards
(TensorFlow), or breaks a later fork.
"""

import sys
from typing import Any


def awake_tensorflow() -> Any:
    """``tensorflow``, if its context is there; else ``None``."""
    eager = sys.modules.get("tensorflow.python.eager.context")
    context = eager.context_safe() if eager is not None else None
    # Every public call on devices initialises the context; only this attribute does not.
    is_awake = context is not None and context._context_handle is not None  # noqa: SLF001
    return sys.modules.get("tensorflow") if is_awake else None


def awake_jax() -> Any:
    """``jax``, if its backends are initialised; else ``None``."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    is_awake = bridge is not None and bridge.backends_are_initialized()
    return sys.modules.get("jax") if is_awake else None
