"""The picture of a kernel profile: time and joules of a step by kind of work."""

from typing import TYPE_CHECKING, Final

from energy_callbacks.report.charts.palette import BLUES, GRID, ORANGES
from energy_callbacks.report.charts.plots import style
from energy_callbacks.report.model.profile_kernels import KernelProfile

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_IDLE: Final = "idle"


def kernels_figure(found: KernelProfile, *, width_in: float = 9.4) -> "Canvas | None":
    """A bar for each kind of work, time a step; beside it joules, if known.

    Args:
        found: what to draw.
        width_in: of the figure, in inches; below 6 the joules are left to the table.

    Returns:
        The figure; ``None`` if nothing was recorded.
    """
    if not found.classes:
        return None
    from matplotlib.figure import Figure as Canvas

    rows = found.classes[::-1]
    names = [row.name for row in rows]
    has_joules = found.j_per_step is not None and width_in >= 6.0
    with style():
        size_in = (width_in, 0.9 + 0.27 * len(rows))
        canvas = Canvas(figsize=size_in, layout="constrained")
        panels = canvas.subplots(1, 2 if has_joules else 1, sharey=True, squeeze=False)[0]
        colours = [GRID if row.class_name == _IDLE else BLUES[0] for row in rows]
        panels[0].barh(names, [1e3 * row.time_s for row in rows], color=colours)
        panels[0].set_xlabel("time a step (ms)")
        if has_joules:
            colours = [GRID if row.class_name == _IDLE else ORANGES[0] for row in rows]
            panels[1].barh(names, [row.energy_j or 0.0 for row in rows], color=colours)
            panels[1].set_xlabel("J a step, attributed by time")
        for panel in panels:
            panel.grid(axis="y", visible=False)
    return canvas
