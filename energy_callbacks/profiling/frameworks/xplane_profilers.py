"""Provides TensorFlow's and JAX's functions to start and stop a trace in the format "xplane"."""

from typing import Any, Literal


def start_and_stop(framework: Literal["tensorflow", "jax"]) -> tuple[Any, Any]:
    """Return the start function, which takes the folder of the trace, and the stop function."""
    if framework == "tensorflow":
        import tensorflow as tf

        return tf.profiler.experimental.start, tf.profiler.experimental.stop
    import jax

    return jax.profiler.start_trace, jax.profiler.stop_trace
