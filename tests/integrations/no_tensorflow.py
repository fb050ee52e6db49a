"""TensorBoard without TensorFlow, where both are installed."""

import sys
from types import ModuleType


def keep_tensorflow_out() -> None:
    """Let TensorBoard take its own stub: else it imports TensorFlow to write a file, for 5 s.

    Not for Keras, whose TensorBoard callback writes with TensorFlow itself.
    """
    sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))


def keep_plots_out() -> None:
    """As where these are not installed: Keras imports them for parts that no script has, for 2 s."""
    for name in ("matplotlib", "sklearn"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def forbid_tensorflow() -> None:
    """As where it is not installed: else Keras on another backend imports it to set a seed."""
    keep_tensorflow_out()
    keep_plots_out()
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
