"""The record of a recommendation in a report."""

from dataclasses import dataclass
from typing import Final, Literal

from energy_callbacks.core import formatting

Code = Literal[
    "data_wait",
    "idle",
    "batch_size",
    "throttling",
    "power_limit",
    "straggler",
    "late_stop",
    "input_bound",
    "launch_bound",
    "memory_bound",
    "copies",
]

# Minimum share of the time or of the energy that justifies a recommendation. Recommendations with
# the code ``straggler`` have other criteria, see ``report/collect/ranks.py``.
MATTERS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A recommendation to change one property of the training.

    Attributes:
        code: short identifier of the kind of recommendation.
        message: what was observed in the run, with numbers.
        fix: the recommended change.
        saves_j: upper bound of the energy that the change would have saved in this run, in joules;
            ``None`` if not known.
        saves_s: upper bound of the time that the change would have saved, in seconds; ``None`` if
            not known.
    """

    code: Code
    message: str
    fix: str
    saves_j: float | None
    saves_s: float | None = None

    @property
    def saving(self) -> str:
        """The known savings as text, such as ``saves up to 1.2 Wh and 8.0 s``; may be empty."""
        known = [
            shown(value)
            for value, shown in (
                (self.saves_j, formatting.energy),
                (self.saves_s, formatting.duration),
            )
            if value is not None
        ]
        return f"saves up to {' and '.join(known)}" if known else ""
