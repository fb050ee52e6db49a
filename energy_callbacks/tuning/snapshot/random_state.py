"""Snapshots of random generators."""

import random
from collections.abc import Iterable
from typing import Any

import numpy as np

from energy_callbacks.tuning.torch_devices import awake_generators


class RandomState:
    """Python's and NumPy's global generators, and PyTorch's of the CPU and of devices in use.

    Args:
        torch: the module; ``None`` if the training has not imported it.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._python = random.getstate()
        self._numpy = np.random.get_state(legacy=False)
        self._states = [(one, one.get_state()) for one in self._generators()]

    def restore(self) -> None:
        """All as they were; a device that was not in use then starts from its seed again."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        known = {id(one) for one, _ in self._states}
        for one in self._generators():
            if id(one) not in known:
                one.manual_seed(one.initial_seed())
        for one, state in self._states:
            one.set_state(state)

    def _generators(self) -> Iterable[Any]:
        return () if self._torch is None else awake_generators(self._torch)
