"""TensorBoard and Keras without what they import only because it is installed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_TAKEN_IF_THERE = ("matplotlib", "sklearn")


def keep_tensorflow_out() -> None:
    """Let TensorBoard take its own stub: else it imports TensorFlow to write a file, for 5 s.

    Not for Keras, whose TensorBoard callback writes with TensorFlow itself.
    """
    sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))


@contextmanager
def lean_keras() -> Iterator[None]:
    """In here Keras is imported without what it takes for parts that no test has, for 2 s."""
    absent = {name: None for name in _TAKEN_IF_THERE if name not in sys.modules}
    sys.modules.update(absent)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def forbid_tensorflow() -> None:
    """As where it is not installed: else Keras on another backend imports it to set a seed."""
    keep_tensorflow_out()
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
