"""Draws charts of a comparison: changes in per cent; power, energy, metric and memory of runs.

A function that draws a chart returns ``None`` if the data for the chart are not known.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from energy_callbacks.compare.answers import change
from energy_callbacks.compare.model import Comparison, Effect, RunCurve
from energy_callbacks.compare.quantities import BY_NAME
from energy_callbacks.core.units import gibibytes
from energy_callbacks.report.charts.catalogue import PAPER_IN, PICTURE_DPI, PICTURE_IN
from energy_callbacks.report.charts.drawing import (
    NARROW_IN,
    Chart,
    VectorFormat,
    add_legend,
    add_note,
    energy_unit,
    figure_png,
    figure_vector,
    name_rows,
    panels,
    short_name,
    time_unit,
    why_left_out,
)
from energy_callbacks.report.charts.palette import GRID, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# Colours of Okabe and Ito from dark to light, then a dark grey.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#4d4d4d")
# Line styles of the groups, in the notation of Matplotlib.
_DASHES: Final = ("-", "--", "-.", ":")
# Maximum number of runs per group whose curves are drawn; more curves would hide each other.
_CURVES_A_GROUP: Final = 8
# Type of a function that returns the x and y values of a run's line.
_Line = Callable[[RunCurve], tuple[Sequence[float], Sequence[float]]]


def pictures(comparison: Comparison) -> Iterator[tuple[str, bytes]]:
    """Yield the file name and the PNG data of each chart that can be drawn."""
    for chart in () if why_left_out() else CHARTS:
        figure = chart.figure(comparison, PICTURE_IN)
        if figure is not None:
            yield f"{chart.name}.png", figure_png(figure, title=chart.title, dpi=PICTURE_DPI)


def vector_graphics(comparison: Comparison, kind: VectorFormat) -> Iterator[tuple[str, bytes]]:
    """Yield file name and content of each chart as a vector graphic for a paper."""
    for chart in CHARTS:
        figure = chart.figure(comparison, PAPER_IN)
        if figure is not None:
            yield f"{chart.name}.{kind}", figure_vector(figure, kind)


def changes(comparison: Comparison, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw each effect as a change in per cent: a point, and a line for its interval."""
    shown = comparison.effects
    if not shown:
        return None
    groups = [group.name for group in comparison.groups]
    with panels(width_in, 0.8 + 0.3 * len(shown)) as (canvas, [axes]):
        axes.axvline(0.0, color=INK, lw=0.9)
        for row, effect in enumerate(shown):
            _draw_effect(axes, row, effect, COLOURS[groups.index(effect.group) % len(COLOURS)])
        _limit(axes, shown)
        titles = [BY_NAME[effect.quantity].title for effect in shown]
        if len(groups) > 2:
            names = [short_name(effect.group, 18) for effect in shown]
            titles = [f"{title} · {name}" for title, name in zip(titles, names, strict=True)]
        name_rows(axes, titles)
        axes.set_xlabel(f"change against {short_name(groups[0], 40)} (%), 95 % interval")
    return canvas


def _draw_effect(axes: "Axes", row: int, effect: Effect, colour: str) -> None:
    """Draw an effect with its interval; the point is hollow if the verdict names no direction."""
    value = 100.0 * (effect.ratio - 1.0)
    if effect.low is not None and effect.high is not None:
        ends = [100.0 * (effect.low - 1.0), 100.0 * (effect.high - 1.0)]
        axes.plot(ends, [row, row], "-", color=colour, lw=2.0, solid_capstyle="butt")
    is_resolved = effect.verdict in ("lower", "higher")
    fill = colour if is_resolved else "white"
    axes.plot(value, row, "o", ms=6.0, color=colour, mfc=fill, mew=1.4)
    label = f"{change(effect)}{'' if is_resolved else f', {effect.verdict}'}"
    options = {"xycoords": ("axes fraction", "data"), "va": "center"}
    add_note(axes, label, (1.0, row), (6, 0), 7.5, **options)


def _limit(axes: "Axes", shown: Sequence[Effect]) -> None:
    """Set the x limits to show all points; cut off long intervals, so that points stay apart.

    Intervals are cut off at twice the largest change of a point, or at 4 % if that is more.
    """
    values = [100.0 * (effect.ratio - 1.0) for effect in shown]
    most = max(2.0, *(abs(value) for value in values))
    ends = [100.0 * (end - 1.0) for effect in shown for end in (effect.low, effect.high) if end]
    low = max(min([0.0, *values, *ends]), -2.0 * most)
    high = min(max([0.0, *values, *ends]), 2.0 * most)
    room = 0.05 * (high - low)
    axes.set_xlim(low - room, high + room)


def power_over_time(comparison: Comparison, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw the power of each run over the time since its start."""
    return _over_time(comparison, width_in, "power (W)", lambda curve: (curve.t_s, curve.power_w))


def energy_by_step(comparison: Comparison, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw the energy that each run had used at each optimizer step."""
    scale, unit = _energy_unit([curve.step_energy_j for *_, curve in _runs(comparison)])
    drawn = _drawn(comparison, lambda one: (one.step, [e / scale for e in one.step_energy_j]))
    return _lines(drawn, width_in, f"energy used ({unit})", "step")


def metric_by_energy(comparison: Comparison, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw each run's metric against the energy used so far, and a line at the target."""
    if comparison.metric is None:
        return None
    scale, unit = _energy_unit([curve.metric_energy_j for *_, curve in _runs(comparison)])
    drawn = _drawn(comparison, lambda one: ([e / scale for e in one.metric_energy_j], one.metric))
    name, label = short_name(comparison.metric), f"energy used ({unit})"
    return _lines(drawn, width_in, name, label, mark=comparison.target)


def _energy_unit(energies_j: Sequence[Sequence[float]]) -> tuple[float, str]:
    return energy_unit(max((max(one, default=0.0) for one in energies_j), default=0.0))


def memory_over_time(comparison: Comparison, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw the peak memory in each time bin of each run over the time since its start.

    The memory is that of the GPU with the highest peak, or of the process if the memory of no GPU
    is known.
    """

    def line(curve: RunCurve) -> tuple[list[float], list[float]]:
        pairs = zip(curve.t_s, curve.memory_bytes, strict=False)
        known = [(t_s, gibibytes(size)) for t_s, size in pairs if size is not None]
        return [t_s for t_s, _ in known], [memory_gib for _, memory_gib in known]

    return _over_time(comparison, width_in, "memory (GiB)", line)


def memory_bars(comparison: Comparison, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw the peak memory of GPU and host: a bar for the mean of a group, and a point per run."""
    names = [n for n in ("peak_memory_bytes", "host_memory_bytes") if comparison.knows(n)]
    if not names:
        return None
    height_in = 0.9 + 0.34 * len(comparison.groups)
    with panels(width_in, height_in, 1, len(names), sharey=True) as (canvas, drawn):
        for axes, name in zip(drawn, names, strict=True):
            for row, group in enumerate(comparison.groups):
                sizes = [gibibytes(run.values[name]) for run in group.runs if name in run.values]
                if sizes:
                    colour = COLOURS[row % len(COLOURS)]
                    axes.barh(row, sum(sizes) / len(sizes), height=0.6, fc=colour, alpha=0.8)
                    axes.plot(sizes, [row] * len(sizes), "o", ms=3.5, mfc="white", mec=INK, mew=0.8)
            axes.set_xlabel(f"{BY_NAME[name].in_sentence} (GiB)")
            axes.grid(visible=False, axis="y")
            axes.tick_params(axis="y", length=0.0)
        name_rows(drawn[0], [short_name(group.name) for group in comparison.groups])
    return canvas


def _runs(comparison: Comparison) -> Iterator[tuple[int, str, RunCurve]]:
    """Yield group index, group name and curves of each run that is drawn."""
    for row, group in enumerate(comparison.groups):
        for curve in group.curves[:_CURVES_A_GROUP]:
            yield row, group.name, curve


def _drawn(comparison: Comparison, line: _Line) -> list[tuple[int, str, Any, Any]]:
    """Return group index, group name, x and y of each run whose line has at least two points."""
    lines = [(row, name, *line(curve)) for row, name, curve in _runs(comparison)]
    return [one for one in lines if len(one[2]) > 1]


def _over_time(comparison: Comparison, width_in: float, label: str, line: _Line) -> "Canvas | None":
    lines = _drawn(comparison, line)
    scale, unit = time_unit(max((max(t_s) for _, _, t_s, _ in lines), default=0.0))
    drawn = [(row, name, [one / scale for one in t_s], y) for row, name, t_s, y in lines]
    return _lines(drawn, width_in, label, f"time ({unit})")


def _lines(
    drawn: Sequence[tuple[int, str, Any, Any]],
    width_in: float,
    y_label: str,
    x_label: str,
    mark: float | None = None,
) -> "Canvas | None":
    """Draw a line per run, in the style of its group; return ``None`` if there are no lines.

    Args:
        drawn: group index, group name, x and y of each line.
        width_in: width of the chart, inches.
        y_label: label of the y axis.
        x_label: label of the x axis.
        mark: y value of a horizontal line; ``None`` for no such line.
    """
    if not drawn:
        return None
    with panels(width_in, 2.8) as (canvas, [axes]):
        named: set[int] = set()
        for row, name, x, y in drawn:
            label = "_" if row in named else short_name(name, 24)
            dashes, colour = _DASHES[row % len(_DASHES)], COLOURS[row % len(COLOURS)]
            axes.plot(x, y, dashes, color=colour, lw=1.2, alpha=0.85, label=label)
            named.add(row)
        if mark is not None:
            axes.axhline(mark, color=GRID, lw=1.2, zorder=0)
        axes.set_ylabel(y_label)
        axes.set_xlabel(x_label)
        add_legend(axes, 2 if width_in < NARROW_IN else 4)
    return canvas


CHARTS: Final[tuple[Chart, ...]] = (
    Chart(name="changes", title="What changes", draw=changes),
    Chart(name="metric_by_energy", title="Metric over energy", draw=metric_by_energy),
    Chart(name="energy_by_step", title="Energy by step", draw=energy_by_step),
    Chart(name="power_timeline", title="Power over time", draw=power_over_time),
    Chart(name="gpu_memory_timeline", title="Memory over time", draw=memory_over_time),
    Chart(name="training_memory_comparison", title="Peak memory", draw=memory_bars),
)
"""All charts, in their order on the page."""
