"""How power and speed of a card follow its limit and clocks.

``c/card_power.c`` has the same formulas; ``test_settings.py`` compares the two. The forms are those
of published measurements: power is ``static + c (f / f_max)^g`` with g between 1.9 and 4.3 on 33
workloads (median 2.8), and the speed is a smooth minimum of what clock and memory allow.
"""

from dataclasses import dataclass

SHARPNESS = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerModel:
    """A busy card.

    Attributes:
        busy_w: power at full load, without a limit, at the highest clocks.
        static_w: power that depends on no clock; also the power of an idle card.
        exponent: exponent of the clock in the power above ``static_w``.
        memory_power_share: share of that power which is proportional to the memory clock.
        step_s: time of a step at the highest clocks.
        memory_time_ratio: time that memory takes relative to computing, at the highest clocks; the
            larger, the less a lower clock slows down the step.
    """

    busy_w: float
    static_w: float = 80.0
    exponent: float = 2.8
    memory_power_share: float = 0.15
    step_s: float = 0.1
    memory_time_ratio: float = 0.8

    def scale(self, x: float, y: float) -> float:
        """The power above ``static_w`` relative to that at the highest clocks.

        Args:
            x: clock relative to the highest.
            y: memory clock relative to the highest.
        """
        return x**self.exponent * (1.0 - self.memory_power_share * (1.0 - y))

    def clock_under(self, limit_w: float, y: float) -> float:
        """The clock, relative to the highest, at which a busy card draws ``limit_w``."""
        highest_w = (self.busy_w - self.static_w) * self.scale(1.0, y)
        return float((max(limit_w - self.static_w, 0.0) / highest_w) ** (1.0 / self.exponent))

    def step_time_s(self, x: float, y: float) -> float:
        """The time of a step."""
        n, r = SHARPNESS, self.memory_time_ratio
        return float(self.step_s * ((x**-n + (r / y) ** n) / (1.0 + r**n)) ** (1.0 / n))
