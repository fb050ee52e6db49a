"""The report as one page: self-contained, no script, every string escaped, readable anywhere.

The page embeds the report's own JSON, so that ``from_html`` gives back the very same report.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from energy_callbacks.core import formatting
from energy_callbacks.core.errors import JournalError
from energy_callbacks.report.charts import palette, plots
from energy_callbacks.report.charts.batch_size_plot import batch_size_figure
from energy_callbacks.report.charts.catalogue import CHARTS, Chart, section_chart
from energy_callbacks.report.charts.profile_sections import Section, sections
from energy_callbacks.report.model import batch_sizes, figure_format
from energy_callbacks.report.model.display import as_notebook_html
from energy_callbacks.report.model.schema import EnergyReport, from_json, to_json
from energy_callbacks.report.render.headline import cards

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATES = Path(__file__).parent / "templates"
_EMBEDDED = re.compile(
    r'<script type="application/json" id="energy-report">(.*?)</script>', re.DOTALL
)
# Inside a script element these could end it or begin a comment; as escapes they are plain JSON.
# The two separators are line ends to JavaScript and not to JSON.
_ESCAPES = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
# Inches of a chart that a desktop shows at its own size, and of one that a telephone does.
_WIDE_IN, _NARROW_IN = 9.4, 4.3


def render(report: EnergyReport) -> str:
    """The page."""
    return template("energy_report.html").render(
        report=report,
        cards=cards(report),
        charts=drawn(report, CHARTS),
        batch_sizes=_batch_sizes(report),
        sections=[_section(one) for one in sections(report.profile)],
        colours=_phase_colours(report),
        started=datetime.fromtimestamp(report.run.started_unix_s, tz=UTC),
        title=report.run.name or f"run {report.run.run_id}",
        embedded=embedded(to_json(report)),
    )


@as_notebook_html.register
def render_frame(report: EnergyReport) -> str:
    """The page in a frame, for notebooks: its styles stay its own."""
    from markupsafe import escape

    return (
        f'<iframe srcdoc="{escape(render(report))}" sandbox title="Energy report" '
        'style="width:100%;height:720px;border:0"></iframe>'
    )


def from_html(text: str) -> EnergyReport:
    """The report that a page embeds.

    Raises:
        JournalError: if the page embeds none, or one that cannot be read.
    """
    found = _EMBEDDED.search(text)
    if found is None:
        raise JournalError(
            "this HTML file is not an energy report: it embeds no element 'energy-report'; "
            "give an energy_report.html, an energy_report.json or a run folder"
        )
    return from_json(found[1])


@cache
def template(name: str) -> "Template":
    """One of the pages, with everything escaped that is put in."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"formatting": formatting, "figure_format": figure_format}
    environment.filters["short"] = _short
    return environment.get_template(name)


def _phase_colours(report: EnergyReport) -> dict[str, str]:
    """The colour of each phase of the tables, as the strip of the chart has it."""
    in_strip = [span.phase for span in report.timeline]
    colours = palette.phase_colours(in_strip + [phase.name for phase in report.phases])
    return {phase.name: palette.css_colour(colours[phase.name]) for phase in report.phases}


def _short(text: str, length: int = 400) -> str:
    """One line that leaves room for others; the embedded data keep all of a text."""
    text = formatting.one_line(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def drawn(shown: Any, charts: Sequence[Chart]) -> list[dict[str, Any]]:
    """Each chart twice, for wide and for narrow windows: style sheets choose.

    Args:
        shown: what the charts draw.
        charts: of which those are left out that have nothing to draw.
    """
    found = [
        {
            "name": chart.name,
            "title": chart.title,
            "wide": svg(shown, chart.draw, f"{chart.name}-wide", chart.title, _WIDE_IN),
            "narrow": svg(shown, chart.draw, f"{chart.name}-narrow", chart.title, _NARROW_IN),
        }
        for chart in charts
    ]
    return [chart for chart in found if chart["wide"]]


def _batch_sizes(report: EnergyReport) -> list[dict[str, Any]]:
    """Each search with its picture and its table."""
    return [
        {
            "sentence": curve.sentence,
            "head": batch_sizes.HEAD,
            "rows": list(batch_sizes.rows(curve)),
            "wide": svg(curve, batch_size_figure, f"sizes-{i}-wide", "Batch size", _WIDE_IN),
            "narrow": svg(curve, batch_size_figure, f"sizes-{i}-narrow", "Batch size", _NARROW_IN),
        }
        for i, curve in enumerate(report.batch_sizes)
    ]


def _section(one: Section) -> dict[str, Any]:
    """A section of a profile, with its picture if it has one."""
    chart = section_chart(one)
    pictures = [] if chart is None else drawn(None, [chart])
    return {"section": one, **(pictures[0] if pictures else {})}


def svg(shown: Any, draw: Callable[..., Any], name: str, title: str, width_in: float) -> Any:
    """A figure as markup, or ``None`` if nothing is known to draw.

    Args:
        shown: what ``draw`` takes.
        draw: gives a figure or ``None``.
        name: unlike that of other figures of the page.
        title: what a screen reader says.
        width_in: of the figure, in inches.
    """
    from markupsafe import Markup

    figure = draw(shown, width_in=width_in)
    # figure_svg escapes every text itself.
    return None if figure is None else Markup(plots.figure_svg(figure, name=name, title=title))  # noqa: S704


def embedded(text: str) -> Any:
    """JSON as markup that no browser takes for anything else."""
    from markupsafe import Markup

    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return Markup(text)  # noqa: S704 - no character of HTML is left in it
