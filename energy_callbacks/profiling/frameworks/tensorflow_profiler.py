"""TensorFlow's profiler for one window."""

from pathlib import Path


def start(folder: Path) -> None:
    """Begin to record into ``plugins/profile/<window>/`` of a folder."""
    import tensorflow as tf

    tf.profiler.experimental.start(str(folder))


def stop() -> None:
    """End, and write."""
    import tensorflow as tf

    tf.profiler.experimental.stop()
