"""Draws charts of power over time and of the energy and power of each phase.

Values that are estimated at least in part are hatched, so that readers can distinguish them without
colours.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from energy_callbacks.core import formatting
from energy_callbacks.report.charts.bands import MAX_BANDS, Band, bands
from energy_callbacks.report.charts.drawing import (
    LONG_LABEL,
    NARROW_IN,
    add_legend,
    add_note,
    energy_unit,
    name_rows,
    panels,
    short_name,
    time_unit,
)
from energy_callbacks.report.charts.palette import INK, PAPER, SCOPE_COLOURS, phase_colours
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.amounts import Figure
from energy_callbacks.report.model.curves import Span
from energy_callbacks.report.model.power_limit import PowerChange
from energy_callbacks.report.model.runs import Phase
from energy_callbacks.report.model.schema import EnergyReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# A difference of a total from its parts that is a smaller share of them is due to rounding.
_ROUNDING = 1e-6
# Maximum length of a label in the legend of a narrow chart, in characters.
_SHORT_LABEL = 16
# Maximum number of bins of a curve per inch: one for every two pixels of a screen with 96 pixels
# per inch.
_BINS_PER_INCH = 48.0
# Maximum number of changes of the power limit that have a label; more would cover each other.
_MOST_LABELS = 12
# Maximum number of bins of all curves together. It keeps an HTML page below 400 kB.
_STEPS_IN_ALL = 2400


def power_over_time(report: EnergyReport, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw the power of the devices as stacked areas, and below them a strip with the phases.

    Args:
        report: the report.
        width_in: width of the figure in inches.

    Returns:
        The figure; ``None`` if no power is known.
    """
    most = _STEPS_IN_ALL // min(max(len(report.series), 1), MAX_BANDS)
    curves = bands(report, max_bins=min(round(_BINS_PER_INCH * width_in), most))
    if not curves:
        return None
    is_narrow = width_in < NARROW_IN
    height_in = 3.3 if is_narrow else 3.5
    with panels(width_in, height_in, 2, sharex=True, height_ratios=(12, 1)) as (canvas, axes):
        canvas.set_layout_engine("constrained", hspace=0.0, h_pad=0.02)
        power, strip = axes
        scale_s, unit = time_unit(curves[0].edges_s[-1])
        _draw_bands(power, curves, scale_s, is_narrow=is_narrow)
        end_s = curves[0].edges_s[-1]
        _draw_phases(strip, report.timeline, scale_s, end_s)
        _mark_attempts(power, report, scale_s, end_s)
        changes = [change for change in report.power_changes if change.t_s < end_s]
        _mark_power_changes(power, changes, scale_s)
        strip.set_xlabel(f"time measured ({unit})")
        # Only PNG files show this legend; the HTML page lists the colours of the phases elsewhere.
        legend = canvas.legend(
            *strip.get_legend_handles_labels(),
            ncols=3 if is_narrow else 6,
            loc="outside lower left",
        )
        legend.set(visible=False, in_layout=False)
    return canvas


def _draw_bands(axes: "Axes", curves: Sequence[Band], scale_s: float, *, is_narrow: bool) -> None:
    from matplotlib.patches import StepPatch

    edges = np.asarray(curves[0].edges_s) / scale_s
    below = np.zeros(len(edges) - 1)
    shades = {scope: cycle(colours) for scope, colours in SCOPE_COLOURS.items()}
    for band in curves:
        above = below + np.asarray(band.power_w)
        label = short_name(band.name, _SHORT_LABEL if is_narrow else LONG_LABEL)
        look: dict[str, Any] = {"baseline": below, "fill": True, "ec": PAPER, "lw": 0.0}
        hatch = "////" if band.is_estimated else None
        # ``axes.stairs`` is not used: it is slower, because it computes the limits of the axes from
        # all bins.
        colour = next(shades[band.scope])
        axes.add_artist(StepPatch(above, edges, fc=colour, hatch=hatch, label=label, **look))
        below = above
    axes.set_ylabel("power (W)")
    axes.set_ylim(0.0, max(float(below.max()) * 1.08, 1e-3))
    axes.set_xlim(float(edges[0]), float(edges[-1]))
    axes.tick_params(axis="x", length=0.0, labelbottom=False)
    add_legend(axes, 2 if is_narrow else 4)


def _draw_phases(axes: "Axes", timeline: Sequence[Span], scale_s: float, end_s: float) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    # One patch for all spans of a phase is faster than one per span. A day has hundreds of spans.
    for phase, colour in phase_colours([span.phase for span in timeline]).items():
        edges = [
            (span.start_s / scale_s, min(span.end_s, end_s) / scale_s)
            for span in timeline
            if span.phase == phase
        ]
        boxes = [
            Path([(a, -0.5), (a, 0.5), (b, 0.5), (b, -0.5), (a, -0.5)], closed=True)
            for a, b in edges
            if b > a
        ]
        if boxes:
            path = Path.make_compound_path(*boxes)
            label = short_name(phase, 20)
            axes.add_artist(PathPatch(path, fc=colour, lw=0.0, antialiased=False, label=label))
    axes.set_ylim(-0.5, 0.5)
    axes.grid(visible=False)
    axes.set_yticks([0.0], ["phase"])
    axes.tick_params(axis="y", length=0.0)
    axes.spines[:].set_visible(False)


def _mark_attempts(axes: "Axes", report: EnergyReport, scale_s: float, end_s: float) -> None:
    """Draw a dashed line with a label at the start of each attempt except the first.

    Attempts that start at or after ``end_s``, the end of the curves, are left out.
    """
    starts_s: dict[int, float] = {}
    for attempt in report.attempts:
        starts_s.setdefault(attempt.attempt, attempt.offset_s)
    for number, start_s in sorted(starts_s.items())[1:]:
        if start_s >= end_s:
            continue
        axes.axvline(start_s / scale_s, color=INK, ls=(0, (4, 3)), lw=0.9)
        place = (start_s / scale_s, 1.0)
        add_note(
            axes, f"attempt {number}", place, (4, -10), 8.0, xycoords=("data", "axes fraction")
        )


def _mark_power_changes(axes: "Axes", changes: Sequence[PowerChange], scale_s: float) -> None:
    """Draw a dotted line at each change of the power limit or clock, with the new setting."""
    for number, change in enumerate(changes):
        place_s = change.t_s / scale_s
        axes.axvline(place_s, color=INK, ls=(0, (1, 2)), lw=0.8)
        if len(changes) <= _MOST_LABELS:
            below = -10 - 9 * (number % 3)  # neighbours are on different lines
            place = (place_s, 1.0)
            add_note(axes, change.label, place, (3, below), 7.0, xycoords=("data", "axes fraction"))


def energy_by_phase(report: EnergyReport, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw a bar for the energy of each phase, with a part for GPUs and one for the host.

    An error bar shows the 95 % interval of the total energy of the phase. A label shows its share
    or, if the energy is not resolved, its upper bound. Phases without a known energy above 0 are
    left out.

    Args:
        report: the report.
        width_in: width of the figure in inches.

    Returns:
        The figure; ``None`` if no phase has a known energy above 0.
    """
    shown = [phase for phase in report.phases if phase.total.energy_j]
    if not shown:
        return None
    scale_j, unit = energy_unit(max(phase.total.energy_j or 0.0 for phase in shown))
    with _bars(shown, f"energy ({unit})", width_in) as (canvas, axes):
        ends = _draw_scopes(axes, shown, lambda _, figure: (figure.energy_j or 0.0) / scale_j)
        errors = [phase.total.error_j / scale_j for phase in shown]
        axes.errorbar(
            ends, range(len(shown)), xerr=errors, fmt="none", ecolor=INK, lw=1.0, capsize=2.5
        )
        ends = [((p.total.energy_j or 0.0) + p.total.error_j) / scale_j for p in shown]
        _label_bars(axes, ends, [_share_or_bound(phase) for phase in shown])
    return canvas


def _share_or_bound(phase: Phase) -> str:
    is_resolved = phase.total.is_resolved
    return figure_format.share(phase) if is_resolved else figure_format.figure(phase.total)


def power_by_phase(report: EnergyReport, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw a bar for the mean power of each phase, with a part for GPUs and one for the host.

    Phases whose energy is not resolved, or whose time is not known, are left out.

    Args:
        report: the report.
        width_in: width of the figure in inches.

    Returns:
        The figure; ``None`` if no phase is left.
    """
    resolved = [one for one in report.phases if one.total.energy_j and one.total.is_resolved]
    shown = [phase for phase in resolved if phase.duration_s > 0.0]
    if not shown:
        return None
    with _bars(shown, "mean power (W)", width_in) as (canvas, axes):
        ends = _draw_scopes(axes, shown, _mean_power_w)
        _label_bars(axes, ends, [formatting.power(power_w) for power_w in ends])
    return canvas


def _mean_power_w(phase: Phase, figure: Figure) -> float:
    """Return the mean power over the time with readings; 0 if the energy is not known."""
    known_s = phase.duration_s * figure.coverage
    return figure.energy_j / known_s if figure.energy_j and known_s else 0.0


@contextmanager
def _bars(shown: Sequence[Phase], label: str, width_in: float) -> "Iterator[tuple[Canvas, Axes]]":
    """Yield a figure and its panel, into which the caller draws a bar for each phase.

    The labels of the axes and the legend are added at the end of the caller's ``with`` block.

    Args:
        shown: the phases, from top to bottom.
        label: label of the x axis.
        width_in: width of the figure in inches.
    """
    with panels(width_in, 0.75 + 0.36 * len(shown)) as (canvas, [axes]):
        yield canvas, axes
        axes.set_xlabel(label)
        name_rows(axes, [short_name(phase.name) for phase in shown])
        axes.margins(y=0.02)
        add_legend(axes, 2)


def _draw_scopes(
    axes: "Axes", shown: Sequence[Phase], value: Callable[[Phase, Figure], float]
) -> list[float]:
    """Draw the GPU part and the host part of each bar, and return the ends of the bars.

    If a sensor measured the whole machine, a third part has what GPUs and host do not contain.

    Args:
        axes: the panel.
        shown: the phases.
        value: function of a phase and one of its energies that returns the length of the part.
    """
    left = [0.0] * len(shown)
    for scope, colour in (("gpu", SCOPE_COLOURS["gpu"][0]), ("host", SCOPE_COLOURS["host"][0])):
        figures: list[Figure] = [getattr(phase, scope) for phase in shown]
        origins = {figure.origin for figure in figures} - {None}
        if not origins:
            continue
        width = [value(phase, figure) for phase, figure in zip(shown, figures, strict=True)]
        label = f"{scope}, {'mixed' if len(origins) > 1 else next(iter(origins))}"
        hatch = None if origins == {"measured"} else "////"
        axes.barh(
            range(len(shown)), width, left=left, height=0.66, fc=colour, ec=PAPER, lw=0.0,
            hatch=hatch, label=label,
        )  # fmt: skip
        left = [a + b for a, b in zip(left, width, strict=True)]
    rest = [
        max(value(phase, phase.total) - end, 0.0) for phase, end in zip(shown, left, strict=True)
    ]
    if sum(rest) <= _ROUNDING * sum(left):
        return left
    axes.barh(
        range(len(shown)), rest, left=left, height=0.66, fc=SCOPE_COLOURS["machine"][0], ec=PAPER,
        lw=0.0, label="rest of the machine",
    )  # fmt: skip
    return [a + b for a, b in zip(left, rest, strict=True)]


def _label_bars(axes: "Axes", ends: Sequence[float], labels: Sequence[str]) -> None:
    """Write a label to the right of each bar; ``ends`` are the x values at which the bars end."""
    for row, (end, label) in enumerate(zip(ends, labels, strict=True)):
        add_note(axes, label, (end, row), (6, 0), 8.5, va="center")
    axes.set_xlim(0.0, max(ends) * 1.12)
