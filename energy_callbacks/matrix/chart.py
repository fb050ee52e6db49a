"""The picture of a matrix: the energy of each run, by configuration, the cheapest on top."""

from typing import TYPE_CHECKING

from energy_callbacks.matrix.rows import MatrixTable
from energy_callbacks.report.charts.drawing import energy_unit, short_name, style
from energy_callbacks.report.charts.palette import BLUES, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_ROW_IN, _FRAME_IN = 0.34, 0.9


def energies_figure(found: MatrixTable, *, width_in: float = 9.4) -> "Canvas | None":
    """A point for each run, a bar at the mean of each configuration."""
    rows = [row for row in found.rows if row.energy_j is not None]
    if not rows:
        return None
    from matplotlib.figure import Figure as Canvas

    scale_j, unit = energy_unit(max(max(row.energies_j) for row in rows))
    with style():
        canvas = Canvas(figsize=(width_in, _FRAME_IN + _ROW_IN * len(rows)), layout="constrained")
        axes = canvas.subplots()
        for place, row in enumerate(rows):
            values = [energy_j / scale_j for energy_j in row.energies_j]
            axes.plot(values, [place] * len(values), "o", color=BLUES[0], ms=5.0, alpha=0.75)
            assert row.energy_j is not None
            axes.plot([row.energy_j / scale_j] * 2, [place - 0.3, place + 0.3], color=INK, lw=1.6)
        axes.set_yticks(range(len(rows)), [short_name(row.name, 48) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(left=0.0)
        scope = "GPU energy" if found.scope == "gpu" else "energy"
        axes.set_xlabel(f"{scope} of a run ({unit}); bars are means")
    return canvas
