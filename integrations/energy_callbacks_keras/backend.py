"""Imports Keras, and raises ``MissingExtraError`` if its backend is not installed."""

from energy_callbacks.core.errors import MissingExtraError

BACKENDS = ("tensorflow", "jax", "torch")

try:
    import keras  # noqa: F401 - imported only to detect a missing backend
except ModuleNotFoundError as error:
    if error.name not in BACKENDS:
        raise
    raise MissingExtraError(
        f"Keras' backend {error.name!r} is not installed; install it, or set the environment "
        "variable KERAS_BACKEND to one that is: tensorflow, jax or torch"
    ) from error
