"""JAX's profiler for one window."""

from pathlib import Path


def start(folder: Path) -> None:
    """Begin to record into ``plugins/profile/<window>/`` of a folder."""
    import jax

    jax.profiler.start_trace(str(folder))


def stop() -> None:
    """End, and write."""
    import jax

    jax.profiler.stop_trace()
