"""The chart of a search for a power limit: energy and time of a step over the settings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from energy_callbacks.report.charts.drawing import NARROW_IN, add_legend, panels
from energy_callbacks.report.charts.palette import BLUES, INK, ORANGES
from energy_callbacks.report.model.power_limit import Estimate, PowerLimitSearch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


def power_limit_figure(search: PowerLimitSearch, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw energy and time of a step over the settings, with 95 % intervals.

    Lines mark the settings that were found and chosen; points are measured.

    Args:
        search: result of the search.
        width_in: width of the figure in inches; a narrow figure has its panels below each other.

    Returns:
        The figure; ``None`` if there is no curve.
    """
    if not search.curve:
        return None
    is_narrow = width_in < NARROW_IN
    height_in, rows, columns = (4.8, 2, 1) if is_narrow else (2.9, 1, 2)
    curves = ("J/step", ORANGES[2], "step_j"), ("seconds/step", BLUES[0], "step_s")
    with panels(width_in, height_in, rows, columns, sharex=is_narrow) as (canvas, drawn):
        for axes, (title, colour, name) in zip(drawn, curves, strict=True):
            values = [point.value for point in search.curve]
            _draw_curve(axes, values, [getattr(one, name) for one in search.curve], colour)
            _draw_points(axes, search, name, colour)
            axes.axvline(search.found, color=INK, ls=(0, (1, 2)), lw=0.9, label="found")
            axes.axvline(search.chosen, color=INK, lw=0.9, label="chosen")
            axes.set_ylabel(title)
            axes.set_ylim(bottom=0.0)
        for axes in drawn[1:] if is_narrow else drawn:
            axes.set_xlabel(f"{search.name} ({search.unit})" if search.unit else search.name)
        add_legend(drawn[0], 2)
    return canvas


def _draw_curve(
    axes: "Axes", values: Sequence[float], estimates: Sequence[Estimate], colour: str
) -> None:
    axes.plot(values, [one.value for one in estimates], color=colour, lw=1.1)
    lows, highs = [one.low for one in estimates], [one.high for one in estimates]
    axes.fill_between(values, lows, highs, color=colour, alpha=0.2, lw=0.0)


def _draw_points(axes: "Axes", search: PowerLimitSearch, name: str, colour: str) -> None:
    measured = [(point.value, getattr(point, name)) for point in search.measured]
    axes.errorbar(
        [value for value, _ in measured],
        [one.value for _, one in measured],
        yerr=[one.high - one.value for _, one in measured],
        color=colour,
        marker="o",
        ls="",
        ms=3.5,
        capsize=2.5,
    )
