"""Called by Lightning's entry point for every new Trainer.

Off it is unless ``ENERGY_CALLBACKS_LIGHTNING=1``, and then it imports nothing.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from energy_callbacks_lightning.callback import GpuEnergyCallback

VARIABLE = "ENERGY_CALLBACKS_LIGHTNING"


def callbacks() -> "list[GpuEnergyCallback]":
    """The callbacks to add to a Trainer: one of ours or none."""
    if not os.environ.get(VARIABLE):
        return []
    from energy_callbacks.core.config import is_disabled, is_on

    if is_disabled() or not is_on(VARIABLE):
        return []
    from energy_callbacks_lightning.automatic import AutomaticCallback

    return [AutomaticCallback()]
