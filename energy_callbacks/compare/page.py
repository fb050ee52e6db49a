"""Saves a comparison as an HTML page, a JSON file, a markdown file and PNG pictures.

The HTML page contains everything that it shows, and runs no scripts.
"""

from pathlib import Path
from typing import Any

from energy_callbacks.compare import plots, text
from energy_callbacks.compare.model import Comparison, to_json
from energy_callbacks.compare.plots import CHARTS
from energy_callbacks.compare.quantities import BY_NAME
from energy_callbacks.core.atomic_files import write
from energy_callbacks.report.model.display import write_files
from energy_callbacks.report.render.html import drawn, embedded, template


@write_files.register
def save(comparison: Comparison, folder: Path) -> list[Path]:
    """Write HTML, JSON, markdown, and a PNG per chart that can be drawn; return their paths."""
    files: list[tuple[str, str | bytes]] = [
        ("comparison.html", render(comparison)),
        ("comparison.json", to_json(comparison)),
        ("comparison.md", text.markdown(comparison)),
        *plots.pictures(comparison),
    ]
    for name, content in files:
        write(folder / name, content)
    return [folder / name for name, _ in files]


def render(comparison: Comparison) -> str:
    """Return the HTML page of a comparison."""
    return template("comparison.html").render(content(comparison))


def content(comparison: Comparison) -> dict[str, Any]:
    """Return the variables of the HTML template; ``energy_callbacks.matrix`` also uses them."""
    return {
        "comparison": comparison,
        "title": " · ".join(group.name for group in comparison.groups),
        "tables": [
            {
                "title": f"{group.name} against {comparison.groups[0].name}",
                "head": text.head(comparison, group),
                "rows": list(text.rows(comparison, group)),
            }
            for group in comparison.groups[1:]
        ],
        "charts": drawn(comparison, CHARTS),
        "known": [one for one in BY_NAME.values() if comparison.knows(one.name)],
        "notes": text.notes(comparison),
        "embedded": embedded(to_json(comparison)),
    }
