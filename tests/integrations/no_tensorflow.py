"""TensorBoard without TensorFlow, where both are installed."""

import sys
from types import ModuleType


def keep_tensorflow_out() -> None:
    """Let TensorBoard take its own stub: else it imports TensorFlow to write a file, for 5 s.

    Not for Keras, whose TensorBoard callback writes with TensorFlow itself.
    """
    sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))


def forbid_tensorflow() -> None:
    """As where it is not installed: else Keras on another backend imports it to set a seed."""
    keep_tensorflow_out()
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
