"""A GPU whose power and throughput are a formula, as a predictor and as a plant.

A tenant with share ``r`` percent and batch ``b`` has ``20 r b / (b + 16)`` samples per second at
1500 MHz. Throughput is proportional to the clock ``f``. Power is ``50 W + 0.1 J * samples per
second at 1500 MHz * (f / 1500 MHz) ** 2``. A power limit lowers the clock until it is met.
"""

from collections.abc import Callable, Sequence

import numpy as np

from energy_callbacks.inference.control.protocols import Abilities, Need, OperatingPoint, Window
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.records import Configuration, Interval, Prediction, Tenant
from energy_callbacks.powercap.settings import KnobRange

IDLE_W = 50.0
HIGHEST_MHZ = 1500.0
CLOCKS = tuple(float(mhz) for mhz in range(300, 1501, 15))
ALL: frozenset[Need] = frozenset({"partition", "batch", "clock", "memory_clock", "limit", "duty"})


def tenants(count: int, share_pct: float = 25.0, batch: int = 16) -> tuple[Tenant, ...]:
    """Return equal tenants."""
    return (Tenant(model="net", share_pct=share_pct, batch=batch),) * count


def problem(**fields: object) -> Problem:
    """Return a problem with few choices."""
    given = {"shares_pct": (25, 50, 100), "batches": (4, 16, 64), **fields}
    return Problem(models=("net",), **given)  # type: ignore[arg-type]


def rate(configuration: Configuration) -> float:
    """Return samples per second at the highest clock."""
    return sum(20.0 * t.share_pct * t.batch / (t.batch + 16.0) for t in configuration.tenants)


def clock(configuration: Configuration) -> float:
    """Return the clock relative to the highest."""
    part = (configuration.sm_mhz or HIGHEST_MHZ) / HIGHEST_MHZ
    limit_w, work_w = configuration.power_limit_w, 0.1 * rate(configuration)
    if limit_w is not None and work_w:
        part = min(part, float(np.sqrt(max(limit_w - IDLE_W, 1.0) / work_w)))
    return part


def power_w(configuration: Configuration) -> float:
    """Return the power."""
    return IDLE_W + 0.1 * rate(configuration) * clock(configuration) ** 2


class LawModel:
    """Predicts by the law.

    Args:
        half: relative half width of its intervals.
    """

    def __init__(self, half: float = 0.03) -> None:
        self._half = half

    def predict(self, configuration: Configuration) -> Prediction:
        part = clock(configuration)
        each = [rate(Configuration(tenants=(one,))) * part for one in configuration.tenants]
        return Prediction(
            throughput_per_s=self._interval(sum(each)),
            power_w=self._interval(power_w(configuration)),
            tenant_throughputs_per_s=tuple(map(self._interval, each)),
            tenant_latencies_ms=tuple(
                self._interval(1e3 * one.batch / of)
                for one, of in zip(configuration.tenants, each, strict=True)
            ),
        )

    def predict_many(self, configurations: Sequence[Configuration]) -> list[Prediction]:
        return [self.predict(one) for one in configurations]

    def _interval(self, value: float) -> Interval:
        return Interval(value, value * (1.0 - self._half), value * (1.0 + self._half))


class LawPlant:
    """Behaves by the law, with noise and with errors of the law.

    Args:
        can: what can be changed.
        noise: relative standard deviation of the power of a window.
        power: factor of the power, over the time in s.
        rates: factor of the throughput by configuration.
        peak: largest reading of a window, relative to its mean.
        seed: seed of the noise.
    """

    def __init__(
        self,
        can: frozenset[Need] = ALL,
        *,
        noise: float = 0.0,
        power: Callable[[float], float] = lambda t_s: 1.0,
        rates: Callable[[Configuration], float] = lambda one: 1.0,
        peak: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.points: list[OperatingPoint] = []
        self._can = can
        self._noise = noise
        self._power = power
        self._rates = rates
        self._peak = peak
        self._rng = np.random.default_rng(seed)
        self._t_s = 0.0

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            can=self._can,
            ranges={
                "clock": _range("clock", CLOCKS),
                "memory_clock": _range("memory_clock", (5001.0, 7001.0, 9501.0)),
                "limit": KnobRange(
                    knob="limit", lowest=80.0, highest=300.0, present=300.0, default=300.0
                ),
            },
        )

    def apply(self, point: OperatingPoint) -> None:
        self.points.append(point)

    def window(self, duration_s: float) -> Window:
        point = self.points[-1]
        configuration = point.configuration
        on_w = power_w(configuration) * self._power(self._t_s)
        mean_w = IDLE_W + point.duty * (on_w - IDLE_W)
        mean_w *= 1.0 + self._noise * float(self._rng.standard_normal())
        samples = rate(configuration) * clock(configuration) * point.duty
        start_s = self._t_s
        self._t_s += duration_s
        return Window(
            start_s=start_s,
            end_s=self._t_s,
            point=point,
            is_steady=True,
            power_mean_w=mean_w,
            power_max_w=mean_w * self._peak,
            throughput_per_s=samples * self._rates(configuration),
            latency_p95_ms=10.0,
        )


def _range(knob: str, steps: tuple[float, ...]) -> KnobRange:
    return KnobRange(
        knob=knob,  # type: ignore[arg-type]
        lowest=steps[0],
        highest=steps[-1],
        present=None,
        default=None,
        steps=steps,
    )
