"""Answers to Annex XI of the EU AI Act on the computation and energy of a training.

Annex XI of Regulation (EU) 2024/1689 lists the technical documentation of general-purpose AI models
(Article 53(1), point (a)). Section 1, point 2, asks in (d) for "the computational resources used to
train the model (e.g. number of floating point operations), training time, and other relevant
details related to the training", and in (e) for "known or estimated energy consumption of the
model". This module answers from a report, and states the method of each figure, or why it is not
known.
"""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

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
_NOT_COUNTED: Final = "not counted in this training"
_ENERGY_UNKNOWN: Final = (
    "no readings of these devices; the Annex permits an estimate from the computational resources"
)


class Disclosure(NamedTuple):
    """One figure.

    Attributes:
        point: ``d`` or ``e`` of Annex XI, section 1, point 2; ``other`` for all other figures.
        name: name of the figure, which contains its unit.
        title: the name for readers, with the unit.
        value: the figure; ``None`` if it is not known.
        method: how the figure was found; if it is not known, the reason.
        low: lower end of the 95 % interval; ``None`` if there is none.
        high: upper end of the interval.
    """

    point: Point
    name: str
    title: str
    value: float | str | None
    method: str
    low: float | None = None
    high: float | None = None


def disclosures(
    report: EnergyReport, *, flops: float | None = None, embodied: Embodied | None = None
) -> Iterator[Disclosure]:
    """Yield all figures; the arguments are those of ``annex_xi``."""
    yield from _resources(report, flops)
    yield from _energies(report)
    yield from _emissions(report, embodied)


def _resources(report: EnergyReport, flops: float | None) -> Iterator[Disclosure]:
    time = "measured time of all attempts, without the pauses between them"
    done = report.throughput
    steps = done.steps + done.replayed_steps or None
    rows: tuple[tuple[str, str, float | str | None, str, str], ...] = (
        ("flops", "Floating point operations", flops, "stated by the user", _FLOPS_UNKNOWN),
        ("training_time_h", "Training time (h)", hours(report.run.duration_s), time, ""),
        ("hardware", "Hardware", equipment(report), "names that the drivers report", ""),
        ("steps", "Optimizer steps", steps, "counted, with repeated steps", _NOT_COUNTED),
        ("samples", "Processed samples", done.samples, "counted", _NOT_COUNTED),
        ("tokens", "Processed tokens", done.tokens, "counted", _NOT_COUNTED),
    )
    for name, title, value, method, reason in rows:
        yield Disclosure("d", name, title, value, reason if value is None else method)


def _energies(report: EnergyReport) -> Iterator[Disclosure]:
    energy, part = report.energy, "part of energy_kwh"
    scopes = {device.scope for device in report.devices}
    sentences = (*methods.scope([report]), *methods.sensors([report]), *methods.coverage([report]))
    method = ". ".join(one.text for one in sentences)
    pue = report.emissions.pue if report.emissions else 1.0
    overhead = (
        f"energy_kwh times the stated PUE of {pue:g}"
        if pue != 1.0
        else "energy_kwh; the PUE is 1, so the overhead of the building is not included"
    )
    building = "Energy with the overhead of the building (kWh)"
    yield _energy("energy_kwh", "Energy of the training (kWh)", energy.total, method)
    for scope, title, figure in (
        ("gpu", "of which GPU (kWh)", energy.gpu),
        ("host", "of which host (kWh)", energy.host),
    ):
        yield _energy(f"{scope}_energy_kwh", title, figure, part, exists=scope in scopes)
    yield _energy("building_energy_kwh", building, energy.total, overhead, factor=pue)
    inference = "the report covers a training; measure inference separately"
    yield Disclosure("e", "inference_energy_kwh", "Energy of inference (kWh)", None, inference)


def _energy(
    name: str, title: str, figure: Figure, method: str, *, factor: float = 1.0, exists: bool = True
) -> Disclosure:
    if figure.energy_j is None or not exists:
        reason = _ENERGY_UNKNOWN if exists else "the report contains no such device"
        return Disclosure("e", name, title, None, reason)
    ends_j = (max(figure.energy_j - figure.error_j, 0.0), figure.energy_j + figure.error_j)
    value, low, high = (kilowatt_hours(one_j) * factor for one_j in (figure.energy_j, *ends_j))
    return Disclosure("e", name, title, value, f"{figure.origin}: {method}", low, high)


def _emissions(report: EnergyReport, embodied: Embodied | None) -> Iterator[Disclosure]:
    found, title = report.emissions, "Emissions of the electricity (kgCO2e)"
    method = ". ".join(one.text for one in methods.emissions([report]))
    if found is None:
        yield Disclosure("other", "emissions_kg", title, None, "the energy is not known")
    else:
        ends_kg = (found.low_kg, found.high_kg)
        yield Disclosure("other", "emissions_kg", title, found.kg, method, *ends_kg)
    share_kg = embodied.share_kg(report.run.duration_s) if embodied else None
    method = hardware_emissions.METHOD if embodied else hardware_emissions.NOT_INCLUDED
    title = "Share of embodied emissions (kgCO2e)"
    yield Disclosure("other", "embodied_emissions_kg", title, share_kg, method)


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
        ValueError: if ``flops`` is not positive and finite, or for an unknown form.
    """
    if form not in ("markdown", "json"):
        raise ValueError(f"form must be 'markdown' or 'json', got {form!r}")
    if flops is not None and not 0.0 < flops < math.inf:
        raise ValueError(
            f"the number of floating point operations must be positive and finite, got {flops}"
        )
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
        "disclosures": [one._asdict() for one in found],
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
    return (one.title, _said(one.value), " to ".join(map(_said, ends)), one.method)


def _said(value: float | str | None) -> str:
    if value is None:
        return formatting.UNKNOWN
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return formatting.grouped(value)
    return formatting.significant(value, 4) if 1e-6 < value < 1e9 else f"{value:.4g}"


def _limitations(report: EnergyReport) -> list[str]:
    """Return why the energy is not that of a whole run, and that the report has one run only."""
    whole = "These are the figures of one run. Add those of all runs that led to the model."
    return [*(f"{one.text}." for one in methods.problems([report])), whole]
