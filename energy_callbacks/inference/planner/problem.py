"""What is asked of the planner: models, allowed settings, limits, and the objective."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Final, Literal, NamedTuple

from energy_callbacks.inference.records import Configuration, Tenant

Objective = Literal["throughput", "energy"]
STEP_PCT: Final = 5
BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256)
# Energy counter and power samples of an H200 agree within 0.7 % (known_sensors.py). The
# error against an external meter is typically 5 % (Yang et al., SC'24, arXiv 2312.02741).
SENSOR_ERROR_PCT: Final = 0.7


class GpuSetting(NamedTuple):
    """Clocks and limit of a GPU; ``None`` leaves one as it is."""

    sm_mhz: float | None = None
    mem_mhz: float | None = None
    power_limit_w: float | None = None

    def configuration(self, tenants: Sequence[Tenant]) -> Configuration:
        """Return the configuration that has this setting."""
        return Configuration(tenants=tuple(tenants), **self._asdict())


class Footprint(NamedTuple):
    """Memory of a process, in GiB: ``fixed_gib + per_sample_gib * batch``."""

    fixed_gib: float
    per_sample_gib: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What to plan.

    Attributes:
        models: models that may run. A model without a minimum rate may be left out of the plan.
        cap_w: largest power of the GPU in W; ``None`` for no cap.
        settings: allowed clocks and limits; by default they stay as they are.
        shares_pct: allowed shares, in percent.
        batches: allowed batches.
        objective: ``"throughput"`` maximises weighted samples per second; ``"energy"`` minimises
            joules per weighted sample.
        weights: weight of a sample of each model; 1 if not given.
        min_rates_per_s: least samples per second of a model, over all its processes.
        max_latencies_ms: longest time of a batch of a model, ms.
        memory_gib: memory of the GPU in GiB; ``None`` if it is not limited.
        footprints: memory of a process of each model; needed if ``memory_gib`` is given.
        sensor_error_pct: error of the power sensor, in percent of the cap.

    Raises:
        ValueError: if a value is out of range or refers to a model that is not in ``models``.
    """

    models: tuple[str, ...]
    cap_w: float | None = None
    settings: tuple[GpuSetting, ...] = (GpuSetting(),)
    shares_pct: tuple[int, ...] = tuple(range(STEP_PCT, 101, STEP_PCT))
    batches: tuple[int, ...] = BATCHES
    objective: Objective = "throughput"
    weights: Mapping[str, float] = field(default_factory=dict)
    min_rates_per_s: Mapping[str, float] = field(default_factory=dict)
    max_latencies_ms: Mapping[str, float] = field(default_factory=dict)
    memory_gib: float | None = None
    footprints: Mapping[str, Footprint] = field(default_factory=dict)
    sensor_error_pct: float = SENSOR_ERROR_PCT

    def __post_init__(self) -> None:
        for name in ("models", "settings", "shares_pct", "batches"):
            if not getattr(self, name):
                raise ValueError(f"{name} must not be empty")
        if any(share % STEP_PCT or not 0 < share <= 100 for share in self.shares_pct):
            raise ValueError(f"shares_pct must be multiples of 5 to 100, got {self.shares_pct}")
        for name in ("weights", "min_rates_per_s", "max_latencies_ms", "footprints"):
            if unknown := set(getattr(self, name)) - set(self.models):
                raise ValueError(
                    f"{name} names {sorted(unknown)}, which are not among the models "
                    f"{sorted(self.models)}"
                )
        if self.memory_gib is not None and (missing := set(self.models) - set(self.footprints)):
            raise ValueError(f"memory_gib needs the footprint of each model; add {sorted(missing)}")
        self._check_numbers()

    def _check_numbers(self) -> None:
        if any(batch < 1 for batch in self.batches):
            raise ValueError(f"batches must be at least 1, got {self.batches}")
        for name in ("cap_w", "memory_gib", "weights", "max_latencies_ms"):
            given = getattr(self, name)
            for value in given.values() if isinstance(given, Mapping) else (given,):
                if value is not None and not 0.0 < value < math.inf:
                    raise ValueError(f"{name} must be positive and finite, got {value:g}")
        for value in self.min_rates_per_s.values():
            if not 0.0 <= value < math.inf:
                raise ValueError(f"min_rates_per_s must be finite and not negative, got {value:g}")
        if not 0.0 <= self.sensor_error_pct < 100.0:
            raise ValueError(
                f"sensor_error_pct must be at least 0 and below 100, got {self.sensor_error_pct:g}"
            )

    @property
    def sensor_error_w(self) -> float:
        """Error of the sensor at the cap, W."""
        return (self.cap_w or 0.0) * self.sensor_error_pct / 100.0

    def tenants(self) -> tuple[Tenant, ...]:
        """Return each process that may run: every model, share and batch."""
        return _tenants(self.models, self.shares_pct, self.batches)

    def has(self, configuration: Configuration) -> bool:
        """Return whether all tenants and settings of a configuration may be chosen."""
        tenants = configuration.tenants
        if not tenants or not set(tenants) <= set(self.tenants()):
            return False
        return configuration in [one.configuration(tenants) for one in self.settings]

    def weight(self, model: str) -> float:
        """Return the weight of a sample of a model."""
        return self.weights.get(model, 1.0)

    def memory_of(self, tenant: Tenant) -> float:
        """Return the memory of a process in GiB; 0 if memory is not limited."""
        if self.memory_gib is None:
            return 0.0
        needed = self.footprints[tenant.model]
        return needed.fixed_gib + needed.per_sample_gib * tenant.batch

    def as_json(self) -> dict[str, Any]:
        """Return the problem as values of JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Problem":
        """Return the problem that ``as_json`` has written.

        Raises:
            ValueError: if a value is out of range.
            TypeError: if a field is unknown or missing.
        """
        lists = {
            name: tuple(values[name])
            for name in ("models", "shares_pct", "batches")
            if name in values
        }
        given: dict[str, Any] = {**values, **lists}
        if "settings" in given:
            given["settings"] = tuple(GpuSetting(*one) for one in given["settings"])
        footprints = given.get("footprints", {})
        given["footprints"] = {name: Footprint(*one) for name, one in footprints.items()}
        return cls(**given)


@cache  # a search asks for them hundreds of times
def _tenants(
    models: tuple[str, ...], shares_pct: tuple[int, ...], batches: tuple[int, ...]
) -> tuple[Tenant, ...]:
    return tuple(
        Tenant(model=model, share_pct=share, batch=batch)
        for model in dict.fromkeys(models)
        for share in shares_pct
        for batch in batches
    )
