"""Settings of a GPU that change its power: limit, locked clocks and duty cycle.

The values of all records are in the unit of their knob:

============== ======================================================= ================
knob           meaning                                                 unit
============== ======================================================= ================
limit          power limit                                             W
clock          locked clock of the multiprocessors (SM)                MHz
memory_clock   locked clock of the memory                              MHz
duty           share of time in which the GPU works (duty cycle)       1, in (0, 1]
============== ======================================================= ================
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

Knob = Literal["limit", "clock", "memory_clock", "duty"]

LOCKS: Final[tuple[Knob, ...]] = ("clock", "memory_clock")
# Settings of the GPU itself; the duty is one of the program that uses it.
GPU_KNOBS: Final[tuple[Knob, ...]] = ("limit", *LOCKS)
UNITS: Final[dict[Knob, str]] = {"limit": "W", "clock": "MHz", "memory_clock": "MHz", "duty": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value of one knob.

    Attributes:
        knob: the knob.
        value: the value in the unit of the knob; ``None`` if clocks are not locked.
    """

    knob: Knob
    value: float | None

    def __str__(self) -> str:
        """Return for example ``limit 300 W`` or ``clock not locked``.

        >>> str(Setting(knob="clock", value=1410.0)), str(Setting(knob="clock", value=None))
        ('clock 1410 MHz', 'clock not locked')
        """
        name = self.knob.replace("_", " ")
        if self.value is None:
            return f"{name} not locked"
        return f"{name} {self.value:g} {UNITS[self.knob]}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobRange:
    """The values of a knob that a card accepts, and its present value.

    Attributes:
        knob: the knob.
        lowest: lowest value.
        highest: highest value.
        present: present value; ``None`` if clocks are not locked or the value cannot be read.
        default: value after the driver is loaded; ``None`` if clocks are not locked then.
        steps: the only values that are allowed, in ascending order; empty if every value from
            ``lowest`` to ``highest`` is allowed.
    """

    knob: Knob
    lowest: float
    highest: float
    present: float | None
    default: float | None
    steps: tuple[float, ...] = ()

    def check(self, value: float | None) -> None:
        """Raise ``ValueError`` if the card does not accept ``value``.

        ``None`` is accepted for clocks: it ends the lock.
        """
        unit = UNITS[self.knob]
        if value is None:
            if self.knob in LOCKS:
                return
            raise ValueError(f"{self.knob} needs a value, got None")
        if not self.lowest <= value <= self.highest:
            raise ValueError(
                f"{self.knob} must be between {self.lowest:g} and {self.highest:g} {unit}".rstrip()
                + f", got {value:g}"
            )
        if self.steps and value not in self.steps:
            raise ValueError(
                f"{self.knob} must be one of the card's values, got {value:g} {unit}; "
                f"the nearest is {self.nearest(value):g} {unit}"
            )

    def nearest(self, value: float) -> float:
        """Return the accepted value that is closest to ``value``.

        >>> clocks = KnobRange(knob="clock", lowest=210.0, highest=1980.0, present=None,
        ...                    default=None, steps=(210.0, 1095.0, 1980.0))
        >>> clocks.nearest(1200.0), clocks.nearest(5000.0)
        (1095.0, 1980.0)
        """
        if self.steps:
            return min(self.steps, key=lambda step: math.fabs(step - value))
        return min(max(value, self.lowest), self.highest)
