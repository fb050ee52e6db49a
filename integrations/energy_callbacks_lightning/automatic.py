"""The callback that an environment variable adds to every Trainer."""

from typing import Any

from energy_callbacks_lightning.callback import GpuEnergyCallback


class AutomaticCallback(GpuEnergyCallback):
    """A ``GpuEnergyCallback`` without settings, which gives way to one of the user's own."""

    __module__ = "energy_callbacks_lightning.automatic"
    _is_alone = False

    @property
    def state_key(self) -> str:
        """If it measures, that of ``GpuEnergyCallback()``: each resumes the other's runs.

        Until then another one: Lightning refuses two of the same in one Trainer.
        """
        own = super().state_key
        if not self._is_alone:
            return own
        return own.replace(type(self).__qualname__, GpuEnergyCallback.__qualname__, 1)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The first hook of every call: leave the Trainer if another one measures."""
        others = [one for one in trainer.callbacks if one is not self]
        self._is_alone = not any(isinstance(one, GpuEnergyCallback) for one in others)
        if not self._is_alone:
            trainer.callbacks = others  # a new list: Lightning walks over the old one
            return
        super().setup(trainer, pl_module, stage)
