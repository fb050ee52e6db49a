"""The icicle of a host profile: the tree of callers and their times."""

from typing import TYPE_CHECKING

from energy_callbacks.report.charts.palette import BLUES, INK, ORANGES
from energy_callbacks.report.charts.plots import style
from energy_callbacks.report.model.profile_host import HostCalls, HostSpan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_DEEPEST = 14
# Characters of the small font that an inch holds, nearly.
_PER_INCH = 12.0


def host_figure(calls: HostCalls, *, width_in: float = 9.4) -> "Canvas | None":
    """Callers above, what they called below; a rectangle is as wide as its share of the time.

    Args:
        calls: what to draw.
        width_in: of the figure, in inches.

    Returns:
        The figure; ``None`` if no function was seen.
    """
    spans = [span for span in calls.tree if span.depth < _DEEPEST]
    if not spans:
        return None
    from matplotlib.figure import Figure as Canvas

    deepest = max(span.depth for span in spans)
    whole_s = max(span.start_s + span.width_s for span in spans)
    with style():
        canvas = Canvas(figsize=(width_in, 0.8 + 0.24 * (deepest + 1)), layout="constrained")
        axes = canvas.subplots()
        for span in spans:
            _draw(axes, span, whole_s, width_in)
        axes.set(xlim=(0.0, whole_s), ylim=(deepest + 1, 0), yticks=())
        axes.set_xlabel("cumulative time of the window (s), callers above, in order of duration")
        axes.grid(visible=False)
        axes.spines[["left"]].set_visible(False)
    return canvas


def _draw(axes: "Axes", span: HostSpan, whole_s: float, width_in: float) -> None:
    colours = ORANGES if span.name.endswith("(built-in)") else BLUES
    axes.barh(
        span.depth,
        span.width_s,
        left=span.start_s,
        height=1.0,
        align="edge",
        color=colours[1 + span.depth % 2 * 2],
        edgecolor="white",
        linewidth=0.5,
    )
    room = int(span.width_s / whole_s * width_in * _PER_INCH) - 1
    if room >= 4:
        name = span.name.split(" (")[0]
        text = name if len(name) <= room else f"{name[: room - 1]}…"
        axes.text(
            span.start_s + 0.004 * whole_s,
            span.depth + 0.5,
            text,
            fontsize=7.0,
            color=INK,
            va="center",
            clip_on=True,
        )
