"""Renders a report as a self-contained HTML page without JavaScript; every string is escaped.

The page embeds the report's JSON, so that ``from_html`` returns an equal report.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from energy_callbacks.core import formatting
from energy_callbacks.core.errors import JournalError
from energy_callbacks.report.analysis.advice import nothing_found
from energy_callbacks.report.charts import drawing, palette
from energy_callbacks.report.charts.catalogue import CHARTS
from energy_callbacks.report.charts.drawing import Chart
from energy_callbacks.report.charts.sections import (
    Section,
    batch_size_sections,
    profile_sections,
)
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.display import as_notebook_html
from energy_callbacks.report.model.schema import EnergyReport, from_json, to_json
from energy_callbacks.report.render import answer
from energy_callbacks.report.render.headline import cards
from energy_callbacks.report.render.tables import ratio_rows

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATES = Path(__file__).parent / "templates"
# The element of a page that contains the JSON of the report.
_EMBEDDED = re.compile(
    r'<script type="application/json" id="energy-report">(.*?)</script>', re.DOTALL
)
# JSON escapes of characters that are special in HTML or JavaScript. U+2028 and U+2029 are line ends
# in JavaScript but not in JSON.
_ESCAPES = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
# Widths of the two drawings of a chart, in inches: for wide screens (desktops) and for narrow
# screens (phones).
_WIDTHS_IN: Final = {"wide": 9.4, "narrow": 4.3}


def render(report: EnergyReport) -> str:
    """Return the HTML page of a report."""
    notes = answer.notes(report)
    return template("energy_report.html").render(
        report=report,
        answer=answer.answer(report),
        warnings=answer.warnings(report),
        notes=[one for one in notes if one.code not in answer.STATISTICS],
        statistics=[one for one in notes if one.code in answer.STATISTICS],
        nothing_found=nothing_found(report),
        ratios=ratio_rows(report),
        cards=cards(report),
        charts=drawn(report, CHARTS),
        batch_sizes=[
            _section(section, f"sizes-{i}") for i, section in enumerate(batch_size_sections(report))
        ],
        sections=[_section(section) for section in profile_sections(report.profile)],
        colours=_phase_colours(report),
        started=datetime.fromtimestamp(report.run.started_unix_s, tz=UTC),
        title=report.run.name or f"run {report.run.run_id}",
        embedded=embedded(to_json(report)),
    )


@as_notebook_html.register
def render_frame(report: EnergyReport) -> str:
    """Return the page in an iframe, so that its styles do not affect the notebook."""
    from markupsafe import escape

    return (
        f'<iframe srcdoc="{escape(render(report))}" sandbox title="Energy report" '
        'style="width:100%;height:720px;border:0"></iframe>'
    )


def from_html(text: str) -> EnergyReport:
    """Return the report that a page embeds.

    Raises:
        JournalError: if the page embeds no report, or if the embedded report cannot be read.
    """
    match = _EMBEDDED.search(text)
    if match is None:
        raise JournalError(
            "this HTML file is not an energy report: it embeds no element 'energy-report'; "
            "give an energy_report.html, an energy_report.json or a run folder"
        )
    return from_json(match[1])


@cache
def template(name: str) -> "Template":
    """Return the template in the file ``name``; all values except ``Markup`` are escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "formatting": formatting,
        "figure_format": figure_format,
        "why_no_charts": drawing.why_left_out,
    }
    environment.filters["short"] = formatting.clipped
    return environment.get_template(name)


def _phase_colours(report: EnergyReport) -> dict[str, str]:
    """Return the CSS colour of each phase by name, as in the chart of power over time."""
    in_strip = [span.phase for span in report.timeline]
    colours = palette.phase_colours(in_strip + [phase.name for phase in report.phases])
    return {phase.name: palette.css_colour(colours[phase.name]) for phase in report.phases}


def drawn(shown: Any, charts: Iterable[Chart]) -> list[dict[str, Any]]:
    """Draw each chart twice, for wide and for narrow screens; the style sheet shows one of them.

    Args:
        shown: the report or comparison that the charts show; ``None`` for charts that hold their
            data themselves.
        charts: the charts; a chart without data is left out.

    Returns:
        The name, the title and both SVG drawings of each chart, for the template.
    """
    pictures = []
    for chart in charts:
        widths = {
            name: svg(chart, shown, width_in, f"{chart.name}-{name}")
            for name, width_in in _WIDTHS_IN.items()
        }
        if widths["wide"]:
            pictures.append({"name": chart.name, "title": chart.title, **widths})
    return pictures


def _section(section: Section, name: str = "") -> dict[str, Any]:
    """Return a section and its drawn chart for the template.

    Args:
        section: the section; its chart may be ``None``.
        name: new name for the chart; empty to keep the name of the chart.
    """
    if section.chart is None:
        return {"section": section}
    chart = replace(section.chart, name=name or section.chart.name)
    return {"section": section, **next(iter(drawn(None, [chart])), {})}


def svg(chart: Chart, shown: Any, width_in: float, name: str) -> Any:
    """Return a chart as SVG markup; ``None`` if there is nothing to draw, or no matplotlib.

    Args:
        chart: the chart.
        shown: see ``drawn``.
        width_in: width in inches.
        name: name of the drawing; must be unique within the page.
    """
    from markupsafe import Markup

    figure = None if drawing.why_left_out() else chart.figure(shown, width_in)
    if figure is None:
        return None
    # figure_svg escapes every text itself.
    return Markup(drawing.figure_svg(figure, name=name, title=chart.title))  # noqa: S704


def embedded(text: str) -> Any:
    """Return JSON as markup that is safe inside a script element."""
    from markupsafe import Markup

    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return Markup(text)  # noqa: S704 - characters special in HTML are escaped
