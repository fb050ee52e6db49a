"""The answers of the planner: a plan, or which limit makes a plan impossible; as JSON and text."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

from energy_callbacks.core import atomic_files
from energy_callbacks.core.tables import aligned
from energy_callbacks.inference.planner.problem import Objective, Problem
from energy_callbacks.inference.records import (
    IDENTITY,
    Configuration,
    Interval,
    Prediction,
    Tenant,
)

VERSION: Final = 1
# 90 % of a normal distribution are within this number of standard deviations, and 95 % below it.
Z: Final = 1.645
UNITS: Final[Mapping[Objective, str]] = {"throughput": "samples/s", "energy": "J/sample"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """Distance that a plan keeps from the power cap.

    Attributes:
        sigma_w: standard deviation of the predicted power, W.
        sensor_error_w: error of the power sensor, W.
    """

    sigma_w: float
    sensor_error_w: float

    @property
    def total_w(self) -> float:
        """The margin in W."""
        return Z * self.sigma_w + self.sensor_error_w

    def __str__(self) -> str:
        return (
            f"{self.total_w:.1f} W: {Z} times the standard deviation of the predicted power "
            f"({self.sigma_w:.2f} W), so that 95 % of such plans stay below the cap, plus the "
            f"error of the power sensor ({self.sensor_error_w:.2f} W)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The best configuration that was found.

    Attributes:
        problem: what was asked.
        configuration: the configuration.
        prediction: what it is predicted to do.
        method: method that has found it.
        value: the objective: weighted samples per second, or joules per weighted sample.
        bound: no plan is better than this value.
        bound_reason: where the bound comes from, and what it assumes.
        margin: distance from the power cap.
        others: values of the plans of the other methods; ``None`` if a method has found none.
    """

    problem: Problem
    configuration: Configuration
    prediction: Prediction
    method: str
    value: float
    bound: float
    bound_reason: str
    margin: Margin
    others: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """Relative distance between the plan and the bound; 0 if the plan is proven to be best."""
        return abs(self.bound - self.value) / abs(self.value)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as values of JSON types."""
        values = {**asdict(self), "problem": self.problem.as_json()}
        return {
            "version": VERSION,
            "source": self.prediction.source,
            # Earlier versions do not read predictions with these fields.
            **{name: values["prediction"].pop(name) for name in IDENTITY},
            "gap": self.gap,
            "unit": UNITS[self.problem.objective],
            **values,
            "margin": {**values["margin"], "z": Z, "total_w": self.margin.total_w},
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Plan":
        """Return the plan that ``as_json`` has written.

        Raises:
            ValueError: if it was written by another version, or is no plan.
        """
        if values.get("version") != VERSION or "configuration" not in values:
            raise ValueError(
                f"this is no plan of version {VERSION}; write it with energy-callbacks powercap "
                "plan"
            )
        kept = ("method", "value", "bound", "bound_reason", "others")
        margin = values["margin"]
        return cls(
            problem=Problem.from_json(values["problem"]),
            configuration=_configuration(values["configuration"]),
            prediction=_prediction(
                {
                    **values["prediction"],
                    **{name: values[name] for name in IDENTITY if name in values},
                }
            ),
            margin=Margin(sigma_w=margin["sigma_w"], sensor_error_w=margin["sensor_error_w"]),
            **{name: values[name] for name in kept},
        )

    def write(self, path: Path) -> None:
        """Write the plan as JSON."""
        atomic_files.write(path, json.dumps(self.as_json(), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """Read a plan.

        Raises:
            ValueError: if the file contains no plan.
            OSError: if it cannot be read.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            return cls.from_json(values if isinstance(values, dict) else {})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path}: {error}") from error

    def text(self, path: Path | None = None) -> str:
        """Return the plan as text.

        Args:
            path: file of the plan, for the command that verifies it.
        """
        lines = [*_tenant_lines(self), "", *_figure_lines(self)]
        if self.problem.cap_w is not None:
            lines.append(f"margin      {self.margin}")
        if path is not None:
            lines.append(f"verify with energy-callbacks powercap verify {shlex.quote(str(path))}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """No configuration is within all limits.

    Attributes:
        problem: what was asked.
        limit: the limit that must change, such as ``"power cap"``; empty if it is more than one.
        allowed: the limit's value.
        needed: value that it would need to have, if all others stay.
        message: both as a sentence.
        is_proven: whether this was proven for the predictor, and not only for its approximation.
    """

    problem: Problem
    limit: str
    allowed: float | None
    needed: float | None
    message: str
    is_proven: bool = True

    def as_json(self) -> dict[str, Any]:
        """Return the refusal as values of JSON types."""
        return {"version": VERSION, **asdict(self), "problem": self.problem.as_json()}

    def text(self) -> str:
        """Return the refusal as text."""
        return f"No plan is possible: {self.message}."


def _tenant_lines(plan: Plan) -> list[str]:
    rows = [("model", "share", "batch", "samples/s", "ms per batch")]
    found = plan.prediction
    for index, tenant in enumerate(plan.configuration.tenants):
        rate, latency = (
            f"{values[index].value:.4g}" if index < len(values) else "-"
            for values in (found.tenant_throughputs_per_s, found.tenant_latencies_ms)
        )
        rows.append((tenant.model, f"{tenant.share_pct:g} %", str(tenant.batch), rate, latency))
    title = "Plan (predicted from simulated data)" if found.source == "simulated" else "Plan"
    return [title, *aligned(rows, "<>")]


def _figure_lines(plan: Plan) -> list[str]:
    chosen, found, unit = plan.configuration, plan.prediction, UNITS[plan.problem.objective]
    settings = [
        f"{name} {value:g} {of}" if value is not None else f"{name} as it is"
        for name, value, of in (
            ("SM clock", chosen.sm_mhz, "MHz"),
            ("memory clock", chosen.mem_mhz, "MHz"),
            ("power limit", chosen.power_limit_w, "W"),
        )
    ]
    others = [
        f"{name} {f'{value:.5g} {unit}' if value is not None else 'no plan'}"
        for name, value in plan.others.items()
    ]
    cap = "" if plan.problem.cap_w is None else f", cap {plan.problem.cap_w:g} W"
    return [
        f"settings    {', '.join(settings)}",
        f"throughput  {_interval(found.throughput_per_s, 'samples/s')}",
        f"power       {_interval(found.power_w, 'W')}{cap}",
        f"objective   {plan.value:.5g} {unit}, found by {plan.method}",
        f"bound       {plan.bound:.5g} {unit}, gap {100.0 * plan.gap:.2f} %: {plan.bound_reason}",
        *([f"others      {', '.join(others)}"] if others else []),
    ]


def _interval(found: Interval, unit: str) -> str:
    return f"{found.value:.5g} {unit} (90 % interval {found.low:.5g} to {found.high:.5g})"


def _configuration(values: Mapping[str, Any]) -> Configuration:
    tenants = tuple(Tenant(**one) for one in values["tenants"])
    return Configuration(**{**values, "tenants": tenants})


def _prediction(values: Mapping[str, Any]) -> Prediction:
    """Return a prediction whose intervals are lists in ``values``."""
    given = dict(values)
    for name in ("throughput_per_s", "power_w", "sm_util_pct", "mem_util_pct"):
        if given.get(name) is not None:
            given[name] = Interval(*given[name])
    for name in ("tenant_throughputs_per_s", "tenant_latencies_ms"):
        given[name] = tuple(Interval(*one) for one in given.get(name, ()))
    return Prediction(**given)


OBJECTIVES: Final = get_args(Objective)
