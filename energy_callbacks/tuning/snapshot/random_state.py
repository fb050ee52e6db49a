"""Snapshots of random generators."""

import random

import numpy as np

from energy_callbacks.tuning.torch_devices import used_generators


class RandomState:
    """Snapshot of the global generators of Python, NumPy and PyTorch (CPU and devices in use)."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy = np.random.get_state(legacy=False)
        self._states = [(generator, generator.get_state()) for generator in used_generators()]

    def restore(self) -> None:
        """Restore all states.

        If a device was first used after the snapshot, its generator is reset to its initial seed.
        """
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        known = {id(generator) for generator, _ in self._states}
        for generator in used_generators():
            if id(generator) not in known:
                generator.manual_seed(generator.initial_seed())
        for generator, state in self._states:
            generator.set_state(state)
