"""Prevents TensorBoard and Keras from importing optional packages that the tests do not need."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_TAKEN_IF_THERE = ("matplotlib", "sklearn")


def keep_tensorflow_out() -> None:
    """Make TensorBoard use its own stub; otherwise it imports TensorFlow, which takes 5 s.

    Do not use this if Keras writes logs: its TensorBoard callback needs TensorFlow.
    """
    sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))


@contextmanager
def lean_keras() -> Iterator[None]:
    """Import Keras in this context without optional packages, which saves 4 s.

    On every backend Keras imports JAX, for its callback ``OrbaxCheckpoint``.
    """
    is_jax = os.environ.get("KERAS_BACKEND", "jax") == "jax"
    optional = _TAKEN_IF_THERE if is_jax else (*_TAKEN_IF_THERE, "jax")
    absent = {name: None for name in optional if name not in sys.modules}
    sys.modules.update(absent)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def forbid_tensorflow() -> None:
    """Make imports of TensorFlow fail; Keras on another backend imports it to set a seed."""
    keep_tensorflow_out()
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
