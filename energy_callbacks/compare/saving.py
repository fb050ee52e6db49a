"""A comparison's files."""

from pathlib import Path

from energy_callbacks.compare import model, page, plots, text
from energy_callbacks.compare.model import Comparison
from energy_callbacks.core.atomic_files import write
from energy_callbacks.report.model.display import write_files


@write_files.register
def save(comparison: Comparison, folder: Path) -> list[Path]:
    """Page, JSON, markdown, and a PNG file for each chart of which something is known."""
    files: list[tuple[str, str | bytes]] = [
        ("comparison.html", page.render(comparison)),
        ("comparison.json", model.to_json(comparison)),
        ("comparison.md", text.markdown(comparison)),
        *plots.pictures(comparison),
    ]
    for name, content in files:
        write(folder / name, content)
    return [folder / name for name, _ in files]
