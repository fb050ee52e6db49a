"""What the callbacks of all frameworks have: the report, and a word to those who mix them up."""

from typing import TYPE_CHECKING, ClassVar

from energy_callbacks.meter import EnergyMeter

if TYPE_CHECKING:
    from energy_callbacks.report.model.schema import EnergyReport

_DOORS = "energy_callbacks.lightning, energy_callbacks.keras or energy_callbacks.huggingface"


class EnergyCallback:
    """The part of every ``GpuEnergyCallback`` that knows no framework.

    Attributes:
        framework_name: what the callback is made for, in words for people.
    """

    framework_name: ClassVar[str]
    _meter: EnergyMeter

    def __getattr__(self, name: str) -> object:
        """Only asked for what is not there: most likely by another framework.

        Raises:
            AttributeError: always, naming the doors of all three.
        """
        if hasattr(type(self), name):  # a property of ours has raised: say what it said
            return object.__getattribute__(self, name)
        raise AttributeError(
            f"the GpuEnergyCallback of {self.framework_name} has no {name!r}; "
            f"in another framework import it from its own door: {_DOORS}"
        )

    @property
    def report(self) -> "EnergyReport":
        """The energy report so far, at any time."""
        return self._meter.report()
