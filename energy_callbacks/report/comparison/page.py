"""A comparison as one page: self-contained, no script, every string escaped."""

from typing import Any

from energy_callbacks.report.comparison import text
from energy_callbacks.report.comparison.model import Comparison, to_json
from energy_callbacks.report.comparison.plots import CHARTS, Chart
from energy_callbacks.report.comparison.quantities import BY_NAME
from energy_callbacks.report.html import embedded, svg, template

_WIDE_IN, _NARROW_IN = 9.4, 4.3


def render(comparison: Comparison) -> str:
    """The page."""
    charts = [_chart(comparison, chart) for chart in CHARTS]
    names = " · ".join(group.name for group in comparison.groups)
    return template("comparison.html").render(
        comparison=comparison,
        title=names,
        tables=[_table(comparison, group) for group in comparison.groups[1:]],
        charts=[chart for chart in charts if chart["wide"]],
        known=[one for one in BY_NAME.values() if _is_known(comparison, one.name)],
        notes=text.notes(comparison),
        embedded=embedded(to_json(comparison)),
    )


def _table(comparison: Comparison, group: Any) -> dict[str, Any]:
    return {
        "title": f"{group.name} against {comparison.groups[0].name}",
        "head": text.head(comparison, group),
        "rows": list(text.rows(comparison, group)),
    }


def _is_known(comparison: Comparison, name: str) -> bool:
    return any(name in run.values for group in comparison.groups for run in group.runs)


def _chart(comparison: Comparison, chart: Chart) -> dict[str, Any]:
    """Twice, for wide and for narrow windows."""
    return {
        "name": chart.name,
        "title": chart.title,
        "wide": svg(comparison, chart.draw, f"{chart.name}-wide", chart.title, _WIDE_IN),
        "narrow": svg(comparison, chart.draw, f"{chart.name}-narrow", chart.title, _NARROW_IN),
    }
