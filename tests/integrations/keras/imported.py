"""What scripts with Keras import, in the process that they are forks of."""

from tests.integrations.no_tensorflow import lean_keras

with lean_keras():
    import h5py  # noqa: F401
    import keras  # noqa: F401

    import energy_callbacks.keras  # noqa: F401
