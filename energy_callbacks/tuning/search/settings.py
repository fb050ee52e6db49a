"""The settings of a search for a batch size: its objective, and the sizes that it may try."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

Objective = Literal["knee", "throughput", "energy", "largest"]

OBJECTIVES: Final[tuple[str, ...]] = get_args(Objective)
# Default of ``multiple_of``: tensor cores work on multiples of 8 half-precision numbers (NVIDIA,
# Deep Learning Performance: Matrix Multiplication Background User's Guide, section 4).
_MULTIPLE: Final = 8
# Defaults of ``max_trials``. A trial takes 2 to 10 s (``Patience``), so 12 take a minute or two.
_MOST_TRIALS: Final = 12
_MOST_BISECTIONS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """The objective of a search, and the sizes that it may try.

    Attributes:
        objective: ``knee`` for the smallest size whose throughput is at most the fraction
            ``knee_share`` below the best; ``throughput`` for the size with the highest throughput;
            ``energy`` for the size with the least energy per sample; ``largest`` for the largest
            size that fits; or a number w from 0 to 1, the weight of energy against time, for the
            size with the least (J per sample)^w (s per sample)^(1 - w).
        min_size: the smallest size.
        max_size: the largest size.
        multiple_of: all sizes are multiples of this number. ``None`` for 1 with the objective
            ``largest``, powers of two or ``divides``, and otherwise for 8. Smaller sizes are then
            allowed if 8 does not fit, and all sizes if none between ``min_size`` and ``max_size``
            is a multiple of 8.
        powers_of_two: whether all sizes are powers of two.
        divides: all sizes are divisors of this number; ``None`` for no such condition.
        start_size: first size to try, such as the current batch size; ``None`` for the smallest
            size.
        memory_bytes: memory of the device; ``None`` if unknown.
        memory_margin: share of the memory that the measured peak must leave free, 0 or more and
            below 1.
        max_trials: maximum number of trials, with repeats. ``None`` for 12, or 20 with the
            objective ``largest``, which bisects.
        max_s: time limit of all trials together (the sum of ``cost_s``) in seconds; no size is
            proposed if a trial of mean duration would exceed the limit. ``None`` for no limit.
        knee_share: allowed relative loss of throughput at the knee.
    """

    objective: Objective | float = "knee"
    min_size: int = 1
    max_size: int = 8192
    multiple_of: int | None = None
    powers_of_two: bool = False
    divides: int | None = None
    start_size: int | None = None
    memory_bytes: int | None = None
    memory_margin: float = 0.1
    max_trials: int | None = None
    max_s: float | None = None
    knee_share: float = 0.03

    def __post_init__(self) -> None:
        _check_objective(self.objective)
        for name in ("min_size", "max_size"):
            _check_count(name, getattr(self, name))
        for name in ("multiple_of", "max_trials", "divides", "start_size", "memory_bytes"):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name), hint=", or None")
        _check_number("memory_margin", self.memory_margin, "0 or more and below 1", 0.0, 1.0)
        _check_number("knee_share", self.knee_share, "above 0 and below 1", 1e-9, 1.0)
        if self.max_s is not None:
            _check_number("max_s", self.max_s, "a positive number of seconds", 1e-9, math.inf)
        if not isinstance(self.powers_of_two, bool):
            raise TypeError(f"powers_of_two must be True or False, got {self.powers_of_two!r}")
        if not self.sizes:
            powers = ", powers_of_two=True" if self.powers_of_two else ""
            divisors = f", divisors of {self.divides}" if self.divides else ""
            raise ValueError(
                f"there must be a size to try, got min_size={self.min_size}, "
                f"max_size={self.max_size}, multiple_of={self.multiple}{powers}{divisors}; "
                "widen the bounds or lower multiple_of"
            )

    @property
    def sizes(self) -> Sequence[int]:
        """All allowed sizes in ascending order."""
        multiple, dividend = self.multiple, self.divides
        first = -(-self.min_size // multiple) * multiple
        last = self.max_size if dividend is None else min(self.max_size, dividend)
        sizes = range(first, last + 1, multiple)
        if dividend is None and not self.powers_of_two:
            return sizes
        return [
            size
            for size in sizes
            if (dividend is None or dividend % size == 0)
            and (not self.powers_of_two or size.bit_count() == 1)
        ]

    @property
    def multiple(self) -> int:
        """All allowed sizes are multiples of this number."""
        if self.multiple_of is not None:
            return self.multiple_of
        is_free = self.objective == "largest" or self.powers_of_two or self.divides is not None
        has_multiples = self.max_size // _MULTIPLE * _MULTIPLE >= self.min_size
        return _MULTIPLE if has_multiples and not is_free else 1

    @property
    def small_sizes(self) -> Sequence[int]:
        """The smallest of ``sizes`` and, if it may not fit, the allowed sizes below it."""
        is_default = self.multiple_of is None and self.multiple > 1
        return range(self.min_size if is_default else self.sizes[0], self.sizes[0] + 1)

    @property
    def most_trials(self) -> int:
        """The maximum number of trials."""
        if self.max_trials is not None:
            return self.max_trials
        return _MOST_BISECTIONS if self.objective == "largest" else _MOST_TRIALS

    @property
    def room_bytes(self) -> float | None:
        """The highest peak that leaves the margin free, bytes; ``None`` if memory is unknown."""
        return None if self.memory_bytes is None else (1 - self.memory_margin) * self.memory_bytes

    @property
    def energy_weight(self) -> float:
        """The weight of energy against time in the cost that the curves model."""
        if isinstance(self.objective, str):
            return 1.0 if self.objective == "energy" else 0.0
        return float(self.objective)


def _check_objective(value: object) -> None:
    if isinstance(value, str) and value in OBJECTIVES:
        return
    if isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0:
        return
    raise ValueError(
        f"objective must be one of {', '.join(OBJECTIVES)} or a weight of energy from 0 to 1, "
        f"got {value!r}; leave it out for the default, knee"
    )


def _check_count(name: str, value: object, hint: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1{hint}, got {value!r}")


def _check_number(name: str, value: object, what: str, low: float, end: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value < end:  # type: ignore[operator]
        raise ValueError(f"{name} must be {what}, got {value!r}; leave it out for the default")
