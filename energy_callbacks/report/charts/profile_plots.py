"""Draws the charts of profiles: time and energy of kernels, and the tree of Python calls."""

from typing import TYPE_CHECKING, Any, Final

from energy_callbacks.report.charts.drawing import NARROW_IN, panels
from energy_callbacks.report.charts.palette import BLUES, GRID, INK, ORANGES
from energy_callbacks.report.model.profile_host import HostCalls, HostSpan
from energy_callbacks.report.model.profile_kernels import KernelProfile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# Space between two panels, as a share of a panel's width. With less space, the last label below one
# panel and the first label below the next one read as a single number.
_WSPACE: Final = 0.08
# Functions with this number of callers above them, or more, are not drawn.
_DEEPEST: Final = 14
# Approximate number of characters per inch in the font of function names.
_CHARACTERS_PER_INCH: Final = 12.0


def kernels_figure(profile: KernelProfile, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw a bar for the time per step of each class of kernels and of idle time.

    A second panel shows the energy per step in the same way, if it is known.

    Args:
        profile: the kernel profile.
        width_in: width of the figure in inches; a narrow figure has no second panel.

    Returns:
        The figure; ``None`` if neither kernels nor operators were recorded.
    """
    if not profile.classes:
        return None
    rows = profile.classes[::-1]
    names = [row.name for row in rows]
    bars = [("time per step (ms)", BLUES[0], [1e3 * row.time_s for row in rows])]
    if profile.j_per_step is not None and width_in >= NARROW_IN:
        energies_j = [row.energy_j or 0.0 for row in rows]
        bars.append(("energy per step (J), attributed by time", ORANGES[0], energies_j))
    height_in = 0.9 + 0.27 * len(rows)
    with panels(width_in, height_in, 1, len(bars), sharey=True) as (canvas, drawn):
        canvas.set_layout_engine("constrained", wspace=_WSPACE)
        for axes, (label, colour, values) in zip(drawn, bars, strict=True):
            colours = [GRID if row.class_name == "idle" else colour for row in rows]
            axes.barh(names, values, color=colours)
            axes.set_xlabel(label)
            axes.grid(axis="y", visible=False)
    return canvas


def host_figure(calls: HostCalls, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw the tree of calls as an icicle chart, in which each function is below its caller.

    A function has one rectangle for each chain of callers. The width of a rectangle is the
    estimated time in the function and its callees when called through this chain.

    Args:
        calls: the profile of Python calls.
        width_in: width of the figure in inches.

    Returns:
        The figure; ``None`` if no function was recorded.
    """
    spans = [span for span in calls.tree if span.depth < _DEEPEST]
    if not spans:
        return None
    deepest = max(span.depth for span in spans)
    end_s = max(span.start_s + span.width_s for span in spans)
    with panels(width_in, 0.8 + 0.24 * (deepest + 1)) as (canvas, [axes]):
        for span in spans:
            _draw_span(axes, span, end_s, width_in)
        axes.set(xlim=(0.0, end_s), ylim=(deepest + 1, 0), yticks=())
        axes.set_xlabel("cumulative time in the window (s); callers above, longest first")
        axes.grid(visible=False)
        axes.spines[["left"]].set_visible(False)
    return canvas


def _draw_span(axes: "Axes", span: HostSpan, end_s: float, width_in: float) -> None:
    colours = ORANGES if span.name.endswith("(built-in)") else BLUES
    colour = colours[1 + span.depth % 2 * 2]
    look: dict[str, Any] = {"height": 1.0, "align": "edge", "ec": "white", "lw": 0.5}
    axes.barh(span.depth, span.width_s, left=span.start_s, color=colour, **look)
    room = int(span.width_s / end_s * width_in * _CHARACTERS_PER_INCH) - 1
    if room >= 4:
        name = span.name.split(" (")[0]
        text = name if len(name) <= room else f"{name[: room - 1]}…"
        place = (span.start_s + 0.004 * end_s, span.depth + 0.5)
        axes.text(*place, text, fontsize=7.0, color=INK, va="center", clip_on=True)
