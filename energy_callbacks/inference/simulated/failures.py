"""Failures that are injected into a simulated GPU."""

from dataclasses import dataclass

from energy_callbacks.powercap.settings import Knob


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """What fails, and when.

    A lack of memory is not listed here: it follows from the batch sizes.

    Attributes:
        has_permission: whether settings may be changed.
        unsupported: knobs that the GPU does not have.
        refuses_clocks: whether the driver accepts a clock and ignores it.
        lost_at_s: time from the start at which the GPU is lost, s.
        foreign_limits: pairs of a time from the start in s and a power limit in W that another
            process sets then.
    """

    has_permission: bool = True
    unsupported: frozenset[Knob] = frozenset()
    refuses_clocks: bool = False
    lost_at_s: float | None = None
    foreign_limits: tuple[tuple[float, float], ...] = ()
