"""A controller that changes nothing, for a plan as it is."""

from energy_callbacks.inference.control.protocols import Abilities, Need, OperatingPoint, Window
from energy_callbacks.inference.records import Configuration, needed


class Fixed:
    """Keeps one configuration, whatever the cap is.

    Args:
        configuration: the configuration.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._point = OperatingPoint(configuration=configuration)
        self.name = "fixed"
        self.needs: frozenset[Need] = frozenset({"partition", "batch", *needed(configuration)})
        self.degraded = ""

    def start(self, cap_w: float, abilities: Abilities) -> OperatingPoint:
        """See ``Controller``.

        Raises:
            ValueError: if the configuration needs a setting that cannot be changed.
        """
        lacking = needed(self._point.configuration).keys() - abilities.can
        if lacking:
            raise ValueError(f"the plan sets {', '.join(sorted(lacking))}, which cannot be changed")
        return self.cap_changed(cap_w)

    def cap_changed(self, cap_w: float) -> OperatingPoint:  # noqa: ARG002
        """See ``Controller``."""
        return self._point

    def step(self, window: Window) -> OperatingPoint:  # noqa: ARG002
        """See ``Controller``."""
        return self._point
