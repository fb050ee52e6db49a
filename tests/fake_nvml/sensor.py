"""How a card's power is seen: windows, delays, the counter, the sample buffer, call costs.

The formulas are in ``c/sensor.c``; these records are its parameters.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

NOT_OFFERED = -1.0
"""How the scenario file says ``None``: not offered by this card."""
MAX_DEPTH = 500
"""Half of ``MAX_SAMPLES`` of ``c/power.c``: a fault may return samples twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """What a call costs: log-normal through median and 99th percentile, fixed by the call's number.

    The value is the one at ``read_at_fraction`` of the cost (0: when the call begins).
    """

    median_s: float
    p99_s: float
    read_at_fraction: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 < self.median_s <= self.p99_s:
            raise ValueError(f"latency got {self}; give 0 < median_s <= p99_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """The driver's ring of power samples.

    Sample i is stamped ``i spacing_s`` plus or minus at most ``jitter_s``, shows the filtered power
    averaged over the ``window_s`` before its stamp (0: at its stamp), and is readable from
    ``age_s`` after it.
    """

    spacing_s: float = 0.020
    jitter_s: float = 0.0
    depth: int = 120
    age_s: float = 0.003
    window_s: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        if not 0.0 <= self.jitter_s < self.spacing_s / 2.0:
            raise ValueError(f"jitter_s got {self.jitter_s}; give less than half the spacing")
        if not 0 < self.depth <= MAX_DEPTH:
            raise ValueError(f"depth got {self.depth}; give 1 to {MAX_DEPTH} samples")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensor:
    """How a card's power is seen.

    Reading at an update u: ``gain * mean(filtered power in [u - lag - window, u - lag]) + offset``,
    where the filter is first-order with ``response_s``. ``period_s=0`` updates continuously,
    ``None`` means that the card does not offer the reading. The counter shows, at its own updates,
    the true energy since the epoch (with gain and offset where ``counter_gained``).
    """

    period_s: float = 0.1
    update_offset_s: float = 0.0
    window_s: float = 0.025
    lag_s: float = 0.0
    response_s: float = 0.0
    gain: float = 1.0
    offset_w: float = 0.0
    power_tick_w: float = 0.001
    energy_tick_j: float = 0.001
    instant_field: bool = True
    usage_window_s: float = 1.0
    average_window_s: float | None = 1.0
    memory_share: float | None = None
    module_extra_w: float | None = None
    counter_period_s: float | None = 0.1
    counter_start_j: float = 1_000_000.0
    counter_gained: bool = False
    buffer: Buffer | None = None

    def lines(self) -> Iterator[str]:
        """The sensor as the scenario file writes it."""
        for item in fields(self):
            if item.name != "buffer":
                yield f"sensor.{item.name} = {number(getattr(self, item.name))}"
        if self.buffer is not None:
            for item in fields(self.buffer):
                yield f"sensor.buffer_{item.name} = {number(getattr(self.buffer, item.name))}"


def number(value: float | None) -> str:
    """A number as the scenario file writes it."""
    return repr(NOT_OFFERED if value is None else float(value))
