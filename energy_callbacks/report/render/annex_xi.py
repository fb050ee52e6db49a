"""Answers to Annex XI of the EU AI Act on the computation and energy of a training.

Annex XI of Regulation (EU) 2024/1689 lists the technical documentation of general-purpose AI models
(Article 53(1), point (a)). Section 1, point 2, asks in (d) for "the computational resources used to
train the model (e.g. number of floating point operations), training time, and other relevant
details related to the training", and in (e) for "known or estimated energy consumption of the
model". This module answers from a report, and states the method of each figure, or why it is not
known.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from energy_callbacks.core import formatting, tables
from energy_callbacks.core.tables import escaped
from energy_callbacks.core.units import hours, kilowatt_hours
from energy_callbacks.report.analysis import embodied as hardware_emissions
from energy_callbacks.report.analysis.embodied import Embodied
from energy_callbacks.report.model.amounts import Figure
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render.paper import methods
from energy_callbacks.report.render.paper.rows import equipment

REGULATION: Final = "Regulation (EU) 2024/1689, Annex XI, section 1, point 2"
Point = Literal["d", "e", "other"]
# Wording of the points, and the title of what the Annex does not ask for.
_POINTS: Final[dict[Point, str]] = {
    "d": "(d) the computational resources used to train the model (e.g. number of floating point "
    "operations), training time, and other relevant details related to the training",
    "e": "(e) known or estimated energy consumption of the model",
    "other": "Emissions, which Annex XI does not ask for",
}
_FLOPS_UNKNOWN: Final = (
    "floating point operations are not counted by this package; state them with --flops, for "
    "example from the architecture and the number of tokens"
)
_ENERGY_UNKNOWN: Final = (
    "no readings of these devices; the Annex permits an estimate from the computational resources"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure:
    """One figure.

    Attributes:
        point: ``d`` or ``e`` of Annex XI, section 1, point 2; ``other`` for all other figures.
        name: name of the figure, which contains its unit.
        title: the name for readers, with the unit.
        value: the figure; ``None`` if it is not known.
        low: lower end of the 95 % interval; ``None`` if there is none.
        high: upper end of the interval.
        method: how the figure was found; if it is not known, the reason.
    """

    point: Point
    name: str
    title: str
    value: float | str | None
    low: float | None = None
    high: float | None = None
    method: str


def disclosures(
    report: EnergyReport, *, flops: float | None = None, embodied: Embodied | None = None
) -> Iterator[Disclosure]:
    """Yield all figures; the arguments are those of ``annex_xi``."""
    yield from _resources(report, flops)
    yield from _energies(report)
    yield from _emissions(report, embodied)


def _resources(report: EnergyReport, flops: float | None) -> Iterator[Disclosure]:
    stated = _FLOPS_UNKNOWN if flops is None else "stated by the user"
    yield _of("d", "flops", "Floating point operations", flops, stated)
    time = "measured time of all attempts, without the pauses between them"
    yield _of("d", "training_time_h", "Training time (h)", hours(report.run.duration_s), time)
    yield _of("d", "hardware", "Hardware", equipment(report), "names that the drivers report")
    done = report.throughput
    steps = done.steps + done.replayed_steps
    yield _of("d", "steps", "Optimizer steps", steps, "counted, with repeated steps")
    for name, count in (("samples", done.samples), ("tokens", done.tokens)):
        method = "counted" if count is not None else "not counted in this training"
        yield _of("d", name, f"Processed {name}", count, method)


def _of(point: Point, name: str, title: str, value: float | str | None, method: str) -> Disclosure:
    return Disclosure(point=point, name=name, title=title, value=value, method=method)


def _energies(report: EnergyReport) -> Iterator[Disclosure]:
    pue = report.emissions.pue if report.emissions else 1.0
    overhead = (
        f"energy_kwh times the stated PUE of {pue:g}"
        if pue != 1.0
        else "energy_kwh; the PUE is 1, so the overhead of the building is not included"
    )
    sentences = (*methods.scope([report]), *methods.sensors([report]), *methods.coverage([report]))
    method = ". ".join(one.text for one in sentences)
    energy, part = report.energy, "part of energy_kwh"
    yield _energy("energy_kwh", "Energy of the training (kWh)", energy.total, method)
    yield _energy("gpu_energy_kwh", "of which GPU (kWh)", energy.gpu, part)
    yield _energy("host_energy_kwh", "of which host (kWh)", energy.host, part)
    title = "Energy with the overhead of the building (kWh)"
    yield _energy("building_energy_kwh", title, energy.total, overhead, pue)
    inference = "the report covers a training; measure inference separately"
    yield _of("e", "inference_energy_kwh", "Energy of inference (kWh)", None, inference)


def _energy(name: str, title: str, figure: Figure, method: str, factor: float = 1.0) -> Disclosure:
    if figure.energy_j is None:
        return _of("e", name, title, None, _ENERGY_UNKNOWN)
    low_j, high_j = max(figure.energy_j - figure.error_j, 0.0), figure.energy_j + figure.error_j
    value, low, high = (kilowatt_hours(x) * factor for x in (figure.energy_j, low_j, high_j))
    method = f"{figure.origin}: {method}"
    return Disclosure(
        point="e", name=name, title=title, value=value, low=low, high=high, method=method
    )


def _emissions(report: EnergyReport, embodied: Embodied | None) -> Iterator[Disclosure]:
    found = report.emissions
    yield Disclosure(
        point="other",
        name="emissions_kg",
        title="Emissions of the electricity (kgCO2e)",
        value=found.kg if found else None,
        low=found.low_kg if found else None,
        high=found.high_kg if found else None,
        method=". ".join(one.text for one in methods.emissions([report]))
        or "the energy is not known",
    )
    share_kg = embodied.share_kg(report.run.duration_s) if embodied else None
    method = hardware_emissions.METHOD if embodied else hardware_emissions.NOT_INCLUDED
    title = "Share of embodied emissions (kgCO2e)"
    yield _of("other", "embodied_emissions_kg", title, share_kg, method)


def annex_xi(
    report: EnergyReport,
    form: Literal["markdown", "json"] = "markdown",
    *,
    flops: float | None = None,
    embodied: Embodied | None = None,
) -> str:
    """Return the answers to Annex XI of the EU AI Act on the computation and energy of a training.

    Args:
        report: report of the training.
        form: format of the document.
        flops: number of floating point operations of the training, as stated by the user; ``None``
            if not known.
        embodied: embodied emissions of the hardware; ``None`` if not known.

    Raises:
        ValueError: if ``flops`` is not positive, or for an unknown form.
    """
    if form not in ("markdown", "json"):
        raise ValueError(f"form must be 'markdown' or 'json', got {form!r}")
    if flops is not None and not flops > 0.0:
        raise ValueError(f"the number of floating point operations must be positive, got {flops}")
    found = list(disclosures(report, flops=flops, embodied=embodied))
    return _json(report, found) if form == "json" else _markdown(report, found)


def _json(report: EnergyReport, found: Sequence[Disclosure]) -> str:
    record: dict[str, Any] = {
        "format": "energy_callbacks.annex_xi",
        "schema_version": 1,
        "tool_version": report.tool_version,
        "regulation": REGULATION,
        "run_id": report.run.run_id,
        "run_name": report.run.name,
        "run_status": report.run.status,
        "disclosures": [asdict(one) for one in found],
        "limitations": _limitations(report),
    }
    return f"{json.dumps(record, indent=2, ensure_ascii=False)}\n"


def _markdown(report: EnergyReport, found: Sequence[Disclosure]) -> str:
    run = escaped(report.run.name or f"run {report.run.run_id}")
    lines = [f"# Computation and energy of the training {run}", "", f"{REGULATION}.", ""]
    for point, title in _POINTS.items():
        rows = [_row(one) for one in found if one.point == point]
        head = ("figure", "value", "95 % interval", "method")
        lines += [f"## {title}", "", *tables.markdown([head, *rows], "<>><"), ""]
    lines += [f"- {escaped(text)}" for text in _limitations(report)]
    return "\n".join(lines).rstrip() + "\n"


def _row(one: Disclosure) -> tuple[str, ...]:
    ends = () if one.low is None or one.high is None else (one.low, one.high)
    interval = " to ".join(map(formatting.significant, ends))
    return (one.title, _said(one.value), interval, one.method)


def _said(value: float | str | None) -> str:
    if value is None:
        return formatting.UNKNOWN
    if isinstance(value, str):
        return value
    return formatting.grouped(value) if isinstance(value, int) else f"{value:.4g}"


def _limitations(report: EnergyReport) -> list[str]:
    """Return why the energy is not that of a whole run, and that the report has one run only."""
    whole = "These are the figures of one run. Add those of all runs that led to the model."
    return [*(f"{one.text}." for one in methods.problems([report])), whole]
