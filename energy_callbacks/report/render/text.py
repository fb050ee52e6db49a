"""Renders a report as plain text, and a summary of it as one line for logs."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

from energy_callbacks.core import formatting
from energy_callbacks.core.tables import aligned, display_width
from energy_callbacks.report.analysis.advice import nothing_found
from energy_callbacks.report.charts.sections import Section
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.display import as_text
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render import answer
from energy_callbacks.report.render.headline import cards, known_ratios
from energy_callbacks.report.render.tables import energy_tables, run_tables

# Lower limit of the argument ``width`` of ``render``, in characters; smaller values count as this.
_NARROWEST = 40
# Names are not cut to fewer characters than this.
_NARROWEST_COLUMN = 6
# Cells may be cut in the first column of a table, and in columns with these heads. Other cells are
# never cut, because a cut number would be wrong.
_NAMES = ("host", "GPUs")


def summary_line(report: EnergyReport, path: Path | None = None) -> str:
    """Return a summary of the run in one line, which is logged at the end of a training.

    For example:
    ``12.3 Wh (gpu 10.1 Wh measured, host 2.2 Wh estimated) · 0.41 J/sample · 4.5 gCO2e (Germany)``

    Args:
        report: the report.
        path: path of the saved report, which is added to the line; ``None`` if it was not saved.
    """
    pieces = [_short_energy(report), _short_efficiency(report), _short_emissions(report)]
    if report.cost is not None and report.cost.currency is not None:
        pieces.append(figure_format.money(report.cost))
    if report.run.status not in ("finished", "running"):
        pieces.insert(0, report.run.status)
    attempts = len({attempt.attempt for attempt in report.attempts})
    if attempts > 1:
        pieces.insert(0, f"{attempts} attempts")
    if count := len(answer.warnings(report)):
        pieces.append(f"{count} warning{'s' if count > 1 else ''}")
    if path is not None:
        pieces.append(f"report: {path}")
    return " · ".join(formatting.one_line(piece) for piece in pieces if piece)


def _short_energy(report: EnergyReport) -> str:
    scopes = {"gpu": report.energy.gpu, "host": report.energy.host}
    known = [
        f"{scope} {figure_format.figure(figure)} {figure.origin}"
        for scope, figure in scopes.items()
        if figure.energy_j is not None
    ]
    if figure_format.has_machine(report.devices):
        known.insert(0, "whole machine")
    if report.energy.total.energy_j is None:
        return "energy not known"
    return f"{figure_format.figure(report.energy.total)} ({', '.join(known)})"


def _short_efficiency(report: EnergyReport) -> str:
    has_gpu = report.efficiency.gpu.j_per_step is not None
    known = known_ratios(report.efficiency.gpu if has_gpu else report.efficiency.total)
    return f"{figure_format.ratio(known[0][1])}/{known[0][0]}" if known else ""


def _short_emissions(report: EnergyReport) -> str:
    emissions = report.emissions
    if emissions is None:
        return ""
    return f"{figure_format.emissions(emissions)} ({figure_format.location(emissions)})"


@as_text.register
def render(report: EnergyReport, width: int = 80) -> str:
    """Return the report as plain text: the answer, warnings, advice, headline, notes, tables.

    Args:
        report: the report.
        width: maximum length of a line in characters; values below 40 count as 40. A row of a
            table may be longer, because only names are cut.
    """
    width = max(width, _NARROWEST)
    blocks = [
        _title(report, width),
        _wrapped(answer.answer(report), width),
        _warnings(report, width),
        _section(Section(title="What to change", notes=advice_lines(report)), width),
        _headline(report, width),
        *(_section(section, width) for section in _sections(report)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _sections(report: EnergyReport) -> Iterator[Section]:
    yield Section(title="Notes", notes=note_lines(report))
    yield from energy_tables(report)
    yield Section(title="Sensors", notes=_sensors(report))
    yield from run_tables(report)
    notes = [f"- {note}" for note in report.method_notes]
    yield Section(title="How the numbers are computed", notes=notes)


def _title(report: EnergyReport, width: int) -> list[str]:
    run = report.run
    name = _clipped(formatting.one_line(run.name or f"run {run.run_id}"), width - 16)
    facts = [run.status, formatting.duration(run.duration_s)]
    if run.framework:
        facts.append(f"{run.framework} {run.framework_version or ''}".strip())
    lines = [f"Energy report: {name}", _clipped(" · ".join(map(formatting.one_line, facts)), width)]
    if run.job:
        lines.append(_clipped(formatting.one_line(run.job.label), width))
    if run.error:
        lines += _wrapped(f"error: {run.error}", width)
    return [*lines, "=" * width]


def _warnings(report: EnergyReport, width: int) -> list[str]:
    lines = []
    for warning in answer.warnings(report):
        lines += _wrapped(f"! {warning.message}", width, indent="  ")
        if warning.fix:
            lines += _wrapped(f"  fix: {warning.fix}", width, indent="  ")
    return lines


def note_lines(report: EnergyReport) -> list[str]:
    """Return a line for each note on the numbers."""
    return [f"- {one.message}{f' -> {one.fix}' if one.fix else ''}" for one in answer.notes(report)]


def _headline(report: EnergyReport, width: int) -> list[str]:
    shown = cards(report)
    label_width = max(len(card.label) for card in shown)
    lines = []
    for card in shown:
        detail = ", ".join(part for part in (card.origin, card.detail) if part)
        text = f"{card.label:<{label_width}}  {card.value}" + (f"  ({detail})" if detail else "")
        lines += _wrapped(text, width, indent=" " * (label_width + 2))
    return lines


def advice_lines(report: EnergyReport) -> list[str]:
    """Return a line for each recommendation; one line that there is none, if there is none."""
    return [
        f"- {one.message}{f' ({one.saving})' if one.saving else ''} -> {one.fix}"
        for one in report.advice
    ] or [nothing_found(report)]


def _sensors(report: EnergyReport) -> list[str]:
    lines = []
    for device in report.devices:
        by_sensor: dict[str, list[str]] = {}
        for sensor in device.sensors:
            by_sensor.setdefault(sensor.name, []).append(sensor.quantity)
        for name, quantities in by_sensor.items():
            lines.append(f"{device.key}: {', '.join(quantities)} by {name}")
    return lines + [f"not read: {one.source} ({one.reason})" for one in report.unavailable]


def _section(section: Section, width: int) -> list[str]:
    """Return the lines of a section, title first; no lines if the section is empty."""
    remarks = [line for remark in section.remarks for line in _wrapped(remark, width)]
    table = aligned(fitted(section, width), width_of=display_width) if section.rows else []
    table += [line for note in section.notes for line in _wrapped(note, width, indent="  ")]
    lines = [_clipped(formatting.one_line(line), width) for line in section.lines]
    body = [line for part in (remarks, table, lines) if part for line in ("", *part)][1:]
    return [section.title, "-" * min(len(section.title), width), *body] if body else []


def fitted(section: Section, width: int) -> list[list[str]]:
    """Return the cells of a section's table, head first; long names are cut if necessary.

    Args:
        section: a section with a table.
        width: maximum length of a row in characters, including two spaces between columns. Rows may
            be longer, because only names are cut.
    """
    cells = [[formatting.one_line(cell) for cell in row] for row in (section.head, *section.rows)]
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    names = [i for i, name in enumerate(section.head) if i == 0 or name in _NAMES]
    for _ in range(max(sum(widths) + 2 * (len(widths) - 1) - width, 0)):
        widest = max(names, key=widths.__getitem__)
        widths[widest] = max(widths[widest] - 1, _NARROWEST_COLUMN)
    return [[_clipped(*pair) for pair in zip(row, widths, strict=True)] for row in cells]


def _clipped(text: str, width: int) -> str:
    if display_width(text) <= width:
        return text
    while text and display_width(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    # Commands such as ``energy-callbacks doctor`` are not broken at their hyphens.
    lines = textwrap.wrap(
        formatting.one_line(text), width, subsequent_indent=indent, break_on_hyphens=False
    )
    return lines or [""]
