"""Power signals as pure functions of time, with their exact integrals.

``c/signal.c`` has the same formulas; ``test_fake_nvml.py`` compares the two. Times are seconds
since the scenario's epoch, negative ones included. A signal may also drive another quantity
than power (a throttled fraction, a temperature, bytes): ``_w`` then stands for its unit.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Signal(Protocol):
    """What a card draws."""

    def power_w(self, t_s: float) -> float:
        """Power at one moment."""
        ...

    def energy_j(self, start_s: float, end_s: float) -> float:
        """Exact integral of the power."""
        ...

    def line(self) -> str:
        """The signal as the scenario file writes it."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """The same power always."""

    level_w: float

    def power_w(self, t_s: float) -> float:
        return self.level_w

    def energy_j(self, start_s: float, end_s: float) -> float:
        return self.level_w * (end_s - start_s)

    def line(self) -> str:
        return f"constant {self.level_w!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """High for ``duty`` of each period, beginning at ``phase_s``, else low."""

    low_w: float
    high_w: float
    period_s: float
    duty: float = 0.5
    phase_s: float = 0.0

    def __post_init__(self) -> None:
        _require_positive(period_s=self.period_s)
        if not 0.0 < self.duty <= 1.0:
            raise ValueError(f"duty is a share of the period, got {self.duty}; give 0 < duty <= 1")

    def power_w(self, t_s: float) -> float:
        shifted_s = t_s - self.phase_s
        rest_s = shifted_s - math.floor(shifted_s / self.period_s) * self.period_s
        return self.high_w if rest_s < self.duty * self.period_s else self.low_w

    def energy_j(self, start_s: float, end_s: float) -> float:
        return self._energy_to_j(end_s - self.phase_s) - self._energy_to_j(start_s - self.phase_s)

    def _energy_to_j(self, t_s: float) -> float:
        on_s = self.duty * self.period_s
        turns = math.floor(t_s / self.period_s)
        rest_s = t_s - turns * self.period_s
        in_turn_j = self.high_w * min(rest_s, on_s) + self.low_w * max(rest_s - on_s, 0.0)
        turn_j = self.high_w * on_s + self.low_w * (self.period_s - on_s)
        return turns * turn_j + in_turn_j

    def line(self) -> str:
        numbers = (self.low_w, self.high_w, self.period_s, self.duty, self.phase_s)
        return f"square {_joined(numbers)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sine:
    """``mean + amplitude sin(2 pi (t - phase) / period)``."""

    mean_w: float
    amplitude_w: float
    period_s: float
    phase_s: float = 0.0

    def __post_init__(self) -> None:
        _require_positive(period_s=self.period_s)

    def power_w(self, t_s: float) -> float:
        return self.mean_w + self.amplitude_w * math.sin(self._angle(t_s))

    def energy_j(self, start_s: float, end_s: float) -> float:
        swing = math.cos(self._angle(start_s)) - math.cos(self._angle(end_s))
        swing_j = self.amplitude_w * self.period_s / (2.0 * math.pi) * swing
        return self.mean_w * (end_s - start_s) + swing_j

    def _angle(self, t_s: float) -> float:
        return 2.0 * math.pi * math.fmod(t_s - self.phase_s, self.period_s) / self.period_s

    def line(self) -> str:
        numbers = (self.mean_w, self.amplitude_w, self.period_s, self.phase_s)
        return f"sine {_joined(numbers)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Staircase:
    """A new level each ``step_s``, uniform in ``[low_w, high_w)``: number i of a splitmix64 stream.

    The hash is of the step's number, so any level is known without those before it.
    """

    low_w: float
    high_w: float
    step_s: float
    seed: int = 1

    def __post_init__(self) -> None:
        _require_positive(step_s=self.step_s)

    def levels_w(self, first: int, end: int) -> NDArray[np.float64]:
        """Levels of the steps ``first`` to ``end - 1``."""
        index = np.arange(first, end, dtype=np.int64).astype(np.uint64)
        return self.low_w + (self.high_w - self.low_w) * uniform(self.seed, index)

    def power_w(self, t_s: float) -> float:
        index = math.floor(t_s / self.step_s)
        return float(self.levels_w(index, index + 1)[0])

    def energy_j(self, start_s: float, end_s: float) -> float:
        if end_s < start_s:
            return -self.energy_j(end_s, start_s)
        first, last = math.floor(start_s / self.step_s), math.floor(end_s / self.step_s)
        levels_w = self.levels_w(first, last + 1)
        before_j = levels_w[0] * (start_s - first * self.step_s)
        after_j = levels_w[-1] * (end_s - last * self.step_s)
        return float(levels_w[:-1].sum() * self.step_s - before_j + after_j)

    def line(self) -> str:
        numbers = (self.low_w, self.high_w, self.step_s)
        return f"staircase {_joined(numbers)} {self.seed % 2**64}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """Straight lines between ``(t_s, power_w)`` points, level before the first, after the last."""

    points: tuple[tuple[float, float], ...]
    _t_s: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _power_w: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _energy_j: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("a recorded signal got no points; give at least one (t_s, power_w)")
        t_s, power_w = np.array(self.points, dtype=float).T
        if np.any(np.diff(t_s) <= 0.0):
            raise ValueError("the points' times do not increase; sort them and drop repetitions")
        pieces_j = np.diff(t_s) * 0.5 * (power_w[1:] + power_w[:-1])
        object.__setattr__(self, "_t_s", t_s)
        object.__setattr__(self, "_power_w", power_w)
        object.__setattr__(self, "_energy_j", np.concatenate([[0.0], np.cumsum(pieces_j)]))

    def power_w(self, t_s: float) -> float:
        return float(np.interp(t_s, self._t_s, self._power_w))

    def energy_j(self, start_s: float, end_s: float) -> float:
        return self._energy_to_j(end_s) - self._energy_to_j(start_s)

    def _energy_to_j(self, t_s: float) -> float:
        index = max(int(np.searchsorted(self._t_s, t_s, side="right")) - 1, 0)
        if t_s < self._t_s[0]:
            return float(self._power_w[0] * (t_s - self._t_s[0]))
        mean_w = 0.5 * (self._power_w[index] + self.power_w(t_s))
        return float(self._energy_j[index] + mean_w * (t_s - self._t_s[index]))

    def line(self) -> str:
        numbers = (number for point in self.points for number in point)
        return f"recorded {len(self.points)} {_joined(numbers)}"


def uniform(seed: int, index: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in ``[0, 1)`` of the splitmix64 stream ``seed`` (Steele, Lea, Flood 2014)."""
    z = np.uint64(seed % 2**64) + (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _joined(numbers: Iterable[float]) -> str:
    return " ".join(repr(float(number)) for number in numbers)


def _require_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0.0:
            raise ValueError(f"{name} got {value}; give a positive number")
