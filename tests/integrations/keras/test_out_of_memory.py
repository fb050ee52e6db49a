"""Real lacks of memory of TensorFlow and JAX, on the processor.

For PyTorch's, and for what all libraries say, see ``tests/tuning/test_out_of_memory.py``.
"""

from collections.abc import Callable
from typing import Any

import pytest

from energy_callbacks.tuning.out_of_memory import is_out_of_memory
from tests.integrations.keras.training import BACKEND

pytestmark = pytest.mark.every_backend

Attempt = Callable[[], Any]


def of_tensorflow() -> list[Attempt]:
    """Allocate a tensor of 128 TiB, directly and in a graph."""
    import tensorflow as tf

    return [
        lambda: tf.zeros([1 << 45]),
        tf.function(lambda: tf.random.normal([1 << 22, 1 << 22])),
    ]


def of_jax() -> list[Attempt]:
    """Allocate an array of 128 TiB, directly and in a compiled function."""
    import jax
    import jax.numpy as jnp

    return [
        lambda: jnp.zeros(1 << 45).block_until_ready(),
        lambda: jax.jit(lambda: jnp.zeros(1 << 45) + 1)().block_until_ready(),
    ]


@pytest.mark.skipif(BACKEND == "torch", reason="see tests/tuning/test_out_of_memory.py")
@pytest.mark.parametrize("number", [0, 1])
def test_a_real_lack_is_known(number: int) -> None:
    """In the framework's type of error."""
    attempts, name = {
        "tensorflow": (of_tensorflow, "ResourceExhaustedError"),
        "jax": (of_jax, "JaxRuntimeError"),
    }[BACKEND]
    with pytest.raises(Exception, match=r"(?i)memory|alloc|OOM") as caught:
        attempts()[number]()
    assert type(caught.value).__name__ == name
    assert is_out_of_memory(caught.value)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="it is TensorFlow that says so")
def test_a_full_disk_is_none() -> None:
    """It has the same type as out of memory."""
    import tensorflow as tf

    with pytest.raises(tf.errors.ResourceExhaustedError) as caught:
        tf.io.write_file("/dev/full", "x" * 100_000)
    assert not is_out_of_memory(caught.value)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="it is TensorFlow that says so")
def test_what_gpus_say() -> None:
    """Real types with the messages of allocators and copies."""
    import tensorflow as tf

    said = tf.errors.ResourceExhaustedError(None, None, "failed to allocate memory")
    copy = tf.errors.InternalError(None, None, "Failed copying: Dst tensor is not initialized.")
    assert is_out_of_memory(said)
    assert is_out_of_memory(copy)
