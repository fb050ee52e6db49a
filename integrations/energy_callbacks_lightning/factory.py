"""Entry point of this package that Lightning calls for every new Trainer.

If the environment variable ``ENERGY_CALLBACKS_LIGHTNING`` is not set, this module adds no callback
and imports no other module of this package.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from energy_callbacks_lightning.callback import GpuEnergyCallback

VARIABLE = "ENERGY_CALLBACKS_LIGHTNING"


def callbacks() -> "list[GpuEnergyCallback]":
    """Return the callbacks to add to a Trainer: one ``AutomaticCallback``, or none."""
    if not os.environ.get(VARIABLE):
        return []
    from energy_callbacks.core.config import is_disabled, is_on

    if is_disabled() or not is_on(VARIABLE):
        return []
    from energy_callbacks_lightning.callback import AutomaticCallback

    return [AutomaticCallback()]
