"""A comparison as one page: self-contained, no script, every string escaped."""

from typing import Any

from energy_callbacks.compare import text
from energy_callbacks.compare.model import Comparison, to_json
from energy_callbacks.compare.plots import CHARTS
from energy_callbacks.compare.quantities import BY_NAME
from energy_callbacks.report.render.html import drawn, embedded, template


def render(comparison: Comparison) -> str:
    """The page."""
    return template("comparison.html").render(content(comparison))


def content(comparison: Comparison) -> dict[str, Any]:
    """The values of the page, also for pages that include it."""
    return {
        "comparison": comparison,
        "title": " · ".join(group.name for group in comparison.groups),
        "tables": [_table(comparison, group) for group in comparison.groups[1:]],
        "charts": drawn(comparison, CHARTS),
        "known": [one for one in BY_NAME.values() if comparison.knows(one.name)],
        "notes": text.notes(comparison),
        "embedded": embedded(to_json(comparison)),
    }


def _table(comparison: Comparison, group: Any) -> dict[str, Any]:
    return {
        "title": f"{group.name} against {comparison.groups[0].name}",
        "head": text.head(comparison, group),
        "rows": list(text.rows(comparison, group)),
    }
