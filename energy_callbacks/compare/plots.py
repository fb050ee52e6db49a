"""The charts of a comparison: what changes, and the runs over time and over steps."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from energy_callbacks.compare.answers import change
from energy_callbacks.compare.model import Comparison, Effect, RunCurve
from energy_callbacks.compare.quantities import BY_NAME
from energy_callbacks.core.units import BYTES_PER_GIBIBYTE
from energy_callbacks.report.charts.catalogue import PICTURE_DPI, PICTURE_IN
from energy_callbacks.report.charts.drawing import (
    Chart,
    energy_unit,
    figure_png,
    short_name,
    style,
    time_unit,
)
from energy_callbacks.report.charts.palette import GRID, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# Okabe and Ito's, in an order in which neighbours differ in lightness too.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#4d4d4d")
_DASHES: Final = ("-", "--", "-.", ":")
# More curves hide each other.
_CURVES_A_GROUP: Final = 8


def pictures(comparison: Comparison) -> Iterator[tuple[str, bytes]]:
    """File name and PNG of each chart of which something is known."""
    for chart in CHARTS:
        figure = chart.draw(comparison, width_in=PICTURE_IN)
        if figure is not None:
            yield f"{chart.name}.png", figure_png(figure, title=chart.title, dpi=PICTURE_DPI)


def changes(comparison: Comparison, *, width_in: float = 9.4) -> "Canvas | None":
    """A point with its interval for each quantity and group, as a change in per cent."""
    shown = list(comparison.effects)
    if not shown:
        return None
    from matplotlib.figure import Figure as Canvas

    names = [group.name for group in comparison.groups]
    with style():
        canvas = Canvas(figsize=(width_in, 0.8 + 0.3 * len(shown)), layout="constrained")
        axes = canvas.subplots()
        axes.axvline(0.0, color=INK, lw=0.9)
        for row, effect in enumerate(shown):
            _draw_effect(axes, row, effect, COLOURS[names.index(effect.group) % len(COLOURS)])
        _limit(axes, shown)
        labels = [_label(effect, several=len(names) > 2) for effect in shown]
        axes.set_yticks(range(len(shown)), labels)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0.0)
        axes.set_xlabel(f"change against {short_name(names[0], 40)} (%), 95 % interval")
    return canvas


def _draw_effect(axes: "Axes", row: int, effect: Effect, colour: str) -> None:
    """Filled if it is resolved, hollow if not, so that it shows without colour too."""
    value = 100.0 * (effect.ratio - 1.0)
    if effect.low is not None and effect.high is not None:
        ends = [100.0 * (effect.low - 1.0), 100.0 * (effect.high - 1.0)]
        axes.plot(ends, [row, row], "-", color=colour, lw=2.0, solid_capstyle="butt")
    is_resolved = effect.verdict != "not resolved"
    axes.plot(
        value, row, "o", ms=6.0, color=colour, mfc=colour if is_resolved else "white", mew=1.4
    )
    axes.annotate(
        f"{change(effect)}{'' if is_resolved else ', not resolved'}",
        (1.0, row), (6, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
        va="center", fontsize=7.5,
    )  # fmt: skip


def _limit(axes: "Axes", shown: Sequence[Effect]) -> None:
    """All points, and of the intervals as much as leaves the points apart."""
    values = [100.0 * (effect.ratio - 1.0) for effect in shown]
    most = max(2.0, *(abs(value) for value in values))
    ends = [100.0 * (end - 1.0) for effect in shown for end in (effect.low, effect.high) if end]
    low = max(min([0.0, *values, *ends]), -2.0 * most)
    high = min(max([0.0, *values, *ends]), 2.0 * most)
    room = 0.05 * (high - low)
    axes.set_xlim(low - room, high + room)


def _label(effect: Effect, *, several: bool) -> str:
    title = BY_NAME[effect.quantity].title
    return f"{title} · {short_name(effect.group, 18)}" if several else title


def power_over_time(comparison: Comparison, *, width_in: float = 9.4) -> "Canvas | None":
    """Power of each run over the time since its start."""
    return _lines(
        comparison, width_in, "power (W)", lambda curve: (curve.t_s, curve.power_w), is_time=True
    )


def energy_by_step(comparison: Comparison, *, width_in: float = 9.4) -> "Canvas | None":
    """Energy used by each optimizer step."""
    most = max((max(c.step_energy_j, default=0.0) for c in _all(comparison)), default=0.0)
    scale, unit = energy_unit(most)
    return _lines(
        comparison, width_in, f"energy used ({unit})",
        lambda curve: (curve.step, [e / scale for e in curve.step_energy_j]), below="step",
    )  # fmt: skip


def metric_by_energy(comparison: Comparison, *, width_in: float = 9.4) -> "Canvas | None":
    """The metric over the energy that brought it there, with the target."""
    if comparison.metric is None:
        return None
    most = max((max(c.metric_energy_j, default=0.0) for c in _all(comparison)), default=0.0)
    scale, unit = energy_unit(most)
    return _lines(
        comparison, width_in, short_name(comparison.metric),
        lambda curve: ([e / scale for e in curve.metric_energy_j], curve.metric),
        below=f"energy used ({unit})", mark=comparison.target,
    )  # fmt: skip


def memory_over_time(comparison: Comparison, *, width_in: float = 9.4) -> "Canvas | None":
    """Memory of the fullest card, else of the process, of each run over time."""

    def line(curve: RunCurve) -> tuple[list[float], list[float]]:
        known = [
            (t, m / BYTES_PER_GIBIBYTE)
            for t, m in zip(curve.t_s, curve.memory_bytes, strict=False)
            if m is not None
        ]
        return [t for t, _ in known], [m for _, m in known]

    return _lines(comparison, width_in, "memory (GiB)", line, is_time=True)


def memory_bars(comparison: Comparison, *, width_in: float = 9.4) -> "Canvas | None":
    """Peak memory of each group, card and host, a point for each run."""
    names = [n for n in ("peak_memory_bytes", "host_memory_bytes") if comparison.knows(n)]
    if not names:
        return None
    from matplotlib.figure import Figure as Canvas

    with style():
        canvas = Canvas(
            figsize=(width_in, 0.9 + 0.34 * len(comparison.groups)), layout="constrained"
        )
        panels = canvas.subplots(1, len(names), squeeze=False, sharey=True).ravel()
        for axes, name in zip(panels, names, strict=True):
            for row, group in enumerate(comparison.groups):
                sizes = [
                    run.values[name] / BYTES_PER_GIBIBYTE
                    for run in group.runs
                    if name in run.values
                ]
                if sizes:
                    colour = COLOURS[row % len(COLOURS)]
                    axes.barh(row, sum(sizes) / len(sizes), height=0.6, fc=colour, alpha=0.8)
                    axes.plot(sizes, [row] * len(sizes), "o", ms=3.5, mfc="white", mec=INK, mew=0.8)
            axes.set_xlabel(f"{BY_NAME[name].title.lower()} (GiB)")
            axes.grid(visible=False, axis="y")
            axes.tick_params(axis="y", length=0.0)
        labels = [short_name(group.name) for group in comparison.groups]
        panels[0].set_yticks(range(len(labels)), labels)
        panels[0].invert_yaxis()
    return canvas


def _all(comparison: Comparison) -> Iterator[RunCurve]:
    for group in comparison.groups:
        yield from group.curves[:_CURVES_A_GROUP]


def _lines(
    comparison: Comparison,
    width_in: float,
    beside: str,
    line: "Callable[[RunCurve], tuple[Sequence[float], Sequence[float]]]",
    *,
    is_time: bool = False,
    below: str = "",
    mark: float | None = None,
) -> "Canvas | None":
    """A line for each run, the runs of a group alike; ``None`` if no line has two points."""
    drawn = [
        (row, group, *line(curve))
        for row, group in enumerate(comparison.groups)
        for curve in group.curves[:_CURVES_A_GROUP]
    ]
    drawn = [one for one in drawn if len(one[2]) > 1]
    if not drawn:
        return None
    from matplotlib.figure import Figure as Canvas

    scale, unit = time_unit(max(max(x) for _, _, x, _ in drawn)) if is_time else (1.0, "")
    with style():
        canvas = Canvas(figsize=(width_in, 2.8), layout="constrained")
        axes = canvas.subplots()
        named: set[int] = set()
        for row, group, x, y in drawn:
            axes.plot(
                [one / scale for one in x], y, _DASHES[row % len(_DASHES)],
                color=COLOURS[row % len(COLOURS)], lw=1.2, alpha=0.85,
                label="_" if row in named else short_name(group.name, 24),
            )  # fmt: skip
            named.add(row)
        if mark is not None:
            axes.axhline(mark, color=GRID, lw=1.2, zorder=0)
        axes.set_ylabel(beside)
        axes.set_xlabel(f"time ({unit})" if is_time else below)
        axes.legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2 if width_in < 6.0 else 4,
            borderaxespad=0.1,
        )  # fmt: skip
    return canvas


CHARTS: Final[tuple[Chart, ...]] = (
    Chart(name="changes", title="What changes", draw=changes),
    Chart(name="metric_by_energy", title="Metric against energy", draw=metric_by_energy),
    Chart(name="energy_by_step", title="Energy by step", draw=energy_by_step),
    Chart(name="power_timeline", title="Power over time", draw=power_over_time),
    Chart(name="gpu_memory_timeline", title="Memory over time", draw=memory_over_time),
    Chart(name="training_memory_comparison", title="Peak memory", draw=memory_bars),
)
"""In the order of the page; a new chart is one line."""
