"""The charts of a report: matplotlib figures, and the same as inline SVG that CSS can restyle.

No pyplot: a figure made here touches no state of the user's own plots. What is
estimated is hatched, so that it differs without colour too.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from energy_callbacks.core import formatting
from energy_callbacks.core.units import JOULES_PER_WATT_HOUR
from energy_callbacks.report.charts.bands import MAX_BANDS, Band, bands
from energy_callbacks.report.charts.palette import (
    BLUES,
    CSS_VARIABLES,
    GRID,
    INK,
    ORANGES,
    PAPER,
    css_colour,
    phase_colours,
)
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.models import Figure, Phase, Span
from energy_callbacks.report.model.schema import EnergyReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_STYLE: Mapping[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 1.1,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "path.simplify": False,
}
# Characters that a legend bears on a desktop and on a telephone.
_LONG_LABEL, _SHORT_LABEL = 28, 16
# About a bin for each two pixels, and not more steps in all curves than a page of 400 kB holds.
_BINS_PER_INCH = 48.0
_STEPS_IN_ALL = 2400


@contextmanager
def style(salt: str = "energy-report") -> Iterator[None]:
    """Our settings on matplotlib's own defaults, so that a user's style (TeX!) is not in force."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn by the browser, which has others.
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        mpl.rcdefaults()
        settings: Any = {**_STYLE, "svg.hashsalt": salt}
        mpl.rcParams.update(settings)
        yield


def power_over_time(report: EnergyReport, *, width_in: float = 9.4) -> "Canvas | None":
    """Power of each device, stacked, with the phases in a strip below.

    Args:
        report: what to draw.
        width_in: of the figure, in inches; below 6 it is laid out for a telephone.

    Returns:
        The figure; ``None`` if no curve of power is known.
    """
    most = _STEPS_IN_ALL // min(max(len(report.series), 1), MAX_BANDS)
    found = bands(report, max_bins=min(round(_BINS_PER_INCH * width_in), most))
    if not found:
        return None
    from matplotlib.figure import Figure as Canvas
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with style():
        height_in = 3.5 if width_in >= 6.0 else 3.3
        layout = ConstrainedLayoutEngine(hspace=0.0, h_pad=0.02)
        canvas = Canvas(figsize=(width_in, height_in), layout=layout)
        power, strip = canvas.subplots(2, 1, sharex=True, height_ratios=(12, 1))
        scale_s, unit = time_unit(found[0].edges_s[-1])
        _draw_bands(power, found, scale_s, is_narrow=width_in < 6.0)
        _draw_phases(strip, report.timeline, scale_s, found[0].edges_s[-1])
        _mark_attempts(power, report, scale_s)
        strip.set_xlabel(f"time measured ({unit})")
        # For pictures: the page has a list of the phases' colours beside the chart.
        columns = 6 if width_in >= 6.0 else 3
        named = canvas.legend(
            *strip.get_legend_handles_labels(), ncols=columns, loc="outside lower left"
        )
        named.set(visible=False, in_layout=False)
    return canvas


def time_unit(duration_s: float) -> tuple[float, str]:
    """Seconds in the unit that suits an axis of this length, and its name."""
    if duration_s < 180.0:
        return 1.0, "s"
    if duration_s < 3.0 * 3600.0:
        return 60.0, "min"
    return 3600.0, "h"


def energy_unit(energy_j: float) -> tuple[float, str]:
    """Joules in the unit that suits an axis up to this energy, and its name."""
    if energy_j < 0.1 * JOULES_PER_WATT_HOUR:
        return JOULES_PER_WATT_HOUR / 1e3, "mWh"
    if energy_j < 1e3 * JOULES_PER_WATT_HOUR:
        return JOULES_PER_WATT_HOUR, "Wh"
    return JOULES_PER_WATT_HOUR * 1e3, "kWh"


def _draw_bands(axes: "Axes", found: Sequence[Band], scale_s: float, *, is_narrow: bool) -> None:
    import numpy as np
    from matplotlib.patches import StepPatch

    edges = np.asarray(found[0].edges_s) / scale_s
    below = np.zeros(len(edges) - 1)
    for band, colour in zip(found, _band_colours(found), strict=True):
        above = below + np.asarray(band.power_w)
        # Not ``axes.stairs``, which walks over every step to find limits that are set below.
        steps = StepPatch(
            above,
            edges,
            baseline=below,  # type: ignore[arg-type]
            fill=True,
            fc=colour,
            ec=PAPER,
            lw=0.0,
            hatch="////" if band.is_estimated else None,
            label=short_name(band.name, _SHORT_LABEL if is_narrow else _LONG_LABEL),
        )
        axes.add_artist(steps)
        below = above
    axes.set_ylabel("power (W)")
    axes.set_ylim(0.0, max(float(below.max()) * 1.08, 1e-3))
    axes.set_xlim(float(edges[0]), float(edges[-1]))
    axes.tick_params(axis="x", length=0.0, labelbottom=False)
    columns = 2 if is_narrow else 4
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, borderaxespad=0.1)


def _band_colours(found: Sequence[Band]) -> list[str]:
    shades = {"gpu": iter(BLUES), "host": iter(ORANGES)}
    return [next(shades[band.scope]) for band in found]


def _draw_phases(axes: "Axes", timeline: Sequence[Span], scale_s: float, end_s: float) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    # One patch for all spans of a phase: a day has hundreds of them.
    for phase, colour in phase_colours([span.phase for span in timeline]).items():
        edges = [(span.start_s, min(span.end_s, end_s)) for span in timeline if span.phase == phase]
        boxes = [
            Path([(a, -0.5), (a, 0.5), (b, 0.5), (b, -0.5), (a, -0.5)], closed=True)
            for a, b in ((start_s / scale_s, stop_s / scale_s) for start_s, stop_s in edges)
            if b > a
        ]
        if boxes:
            path = Path.make_compound_path(*boxes)
            patch = PathPatch(
                path, fc=colour, lw=0.0, antialiased=False, label=short_name(phase, 20)
            )
            axes.add_artist(patch)
    axes.set_ylim(-0.5, 0.5)
    axes.grid(visible=False)
    axes.set_yticks([0.0], ["phase"])
    axes.tick_params(axis="y", length=0.0)
    axes.spines[:].set_visible(False)


def _mark_attempts(axes: "Axes", report: EnergyReport, scale_s: float) -> None:
    """A dashed line where each later attempt begins."""
    starts_s: dict[int, float] = {}
    for attempt in report.attempts:
        starts_s.setdefault(attempt.attempt, attempt.offset_s)
    for number, start_s in sorted(starts_s.items())[1:]:
        axes.axvline(start_s / scale_s, color=INK, ls=(0, (4, 3)), lw=0.9)
        axes.annotate(
            f"attempt {number}",
            (start_s / scale_s, 1.0),
            (4, -10),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=8.0,
        )


def energy_by_phase(report: EnergyReport, *, width_in: float = 9.4) -> "Canvas | None":
    """A bar for each phase, gpu and host in it, hatched if estimated, with the 95 % interval.

    Args:
        report: what to draw.
        width_in: of the figure, in inches.

    Returns:
        The figure; ``None`` if no phase has a known energy.
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
        _label_bars(axes, ends, [figure_format.share(phase) for phase in shown])
    return canvas


def power_by_phase(report: EnergyReport, *, width_in: float = 9.4) -> "Canvas | None":
    """A bar for each phase: mean power of gpu and host over the time that was seen.

    Args:
        report: what to draw.
        width_in: of the figure, in inches.

    Returns:
        The figure; ``None`` if no phase was long enough for its sensors.
    """
    shown = [phase for phase in report.phases if phase.total.energy_j and phase.total.is_resolved]
    if not shown:
        return None
    with _bars(shown, "mean power (W)", width_in) as (canvas, axes):
        ends = _draw_scopes(axes, shown, _mean_power_w)
        _label_bars(axes, ends, [formatting.power(power_w) for power_w in ends])
    return canvas


def _mean_power_w(phase: Phase, figure: Figure) -> float:
    seen_s = phase.duration_s * figure.coverage
    return figure.energy_j / seen_s if figure.energy_j and seen_s else 0.0


@contextmanager
def _bars(shown: Sequence[Phase], label: str, width_in: float) -> "Iterator[tuple[Canvas, Axes]]":
    """A figure for a bar a phase, which is drawn in between."""
    from matplotlib.figure import Figure as Canvas

    with style():
        canvas = Canvas(figsize=(width_in, 0.75 + 0.36 * len(shown)), layout="constrained")
        axes = canvas.subplots()
        yield canvas, axes
        axes.set_xlabel(label)
        axes.set_yticks(range(len(shown)), [short_name(phase.name) for phase in shown])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0.0)
        axes.margins(y=0.02)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.1)


def _draw_scopes(
    axes: "Axes", shown: Sequence[Phase], value: Callable[[Phase, Figure], float]
) -> list[float]:
    """What gpu and host have of each bar, and where the bars end."""
    left = [0.0] * len(shown)
    for scope, colour in (("gpu", BLUES[0]), ("host", ORANGES[0])):
        found: list[Figure] = [getattr(phase, scope) for phase in shown]
        origins = {figure.origin for figure in found} - {None}
        if not origins:
            continue
        width = [value(phase, figure) for phase, figure in zip(shown, found, strict=True)]
        label = f"{scope}, {'mixed' if len(origins) > 1 else next(iter(origins))}"
        hatch = None if origins == {"measured"} else "////"
        axes.barh(
            range(len(shown)), width, left=left, height=0.66, fc=colour, ec=PAPER, lw=0.0,
            hatch=hatch, label=label,
        )  # fmt: skip
        left = [a + b for a, b in zip(left, width, strict=True)]
    return left


def _label_bars(axes: "Axes", ends: Sequence[float], labels: Sequence[str]) -> None:
    """A few words behind each bar."""
    for row, (end, label) in enumerate(zip(ends, labels, strict=True)):
        axes.annotate(
            label, (end, row), (6, 0), textcoords="offset points", va="center", fontsize=8.5
        )
    axes.set_xlim(0.0, max(ends) * 1.12)


def short_name(name: str, length: int = _LONG_LABEL) -> str:
    """A name that fits a chart: one line, no control characters, not longer than a legend bears."""
    # A leading underscore would make matplotlib leave the entry out of the legend.
    clean = re.sub(r" +", " ", formatting.one_line(name)).strip().lstrip("_") or "unnamed"
    return clean if len(clean) <= length else clean[: length - 1] + "…"


def figure_png(fig: "Canvas", *, title: str = "", dpi: float = 100.0) -> bytes:
    """A figure as PNG on paper, for viewers that show pictures only.

    Args:
        fig: the figure.
        title: above it, cut to its width; ``""`` for none.
        dpi: points per inch.
    """
    buffer = io.BytesIO()
    with style():
        if title:
            # At 10 points a letter is a twelfth of an inch wide at most.
            most = round(12 * fig.get_figwidth())
            fig.suptitle(short_name(title, most), x=0.01, ha="left", fontsize=10.0)
        for legend in fig.legends:
            legend.set(visible=True, in_layout=True)
        fig.savefig(buffer, format="png", facecolor=PAPER, dpi=dpi)
    return buffer.getvalue()


def figure_svg(fig: "Canvas", *, name: str = "chart", title: str = "") -> str:
    """A figure as inline SVG: the same bytes each time, no size of its own, colours by CSS.

    Args:
        fig: the figure.
        name: unlike that of other figures of the page, so that their ids differ.
        title: what a screen reader says.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.StringIO()
    with style(salt=name):
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        # Not ``fig.savefig``, which lays the figure out twice.
        FigureCanvasSVG(fig).print_svg(buffer, metadata=metadata)  # type: ignore[no-untyped-call]
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r' d="[^"]*"', _shorter, svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r' (?:x|y|transform)="[^"]*"', _rounded, svg)
    svg = re.sub(r">\s+<", "><", svg)
    svg = svg.replace("font-family: 'DejaVu Sans'; ", "")  # it has that of the page
    for colour in CSS_VARIABLES:
        svg = svg.replace(colour, css_colour(colour))
    return svg.replace("<svg", f'<svg role="img" aria-label="{_attribute(title)}"', 1)


def _rounded(attribute: "re.Match[str]") -> str:
    return re.sub(r"(\.\d\d)\d+", r"\1", attribute[0])


def _shorter(path: "re.Match[str]") -> str:
    """A path with hundredths of a point, which no screen shows, instead of millionths.

    A line along an axis names one coordinate instead of two: that halves a curve of steps.
    """
    found = _rounded(path).replace("\n", "")
    before: tuple[str, str] | None = None

    def along_axis(point: "re.Match[str]") -> str:
        nonlocal before
        (command, x, y), last = point.groups(), before
        before = (x, y)
        if command == "L" and last is not None and x == last[0]:
            return f"V{y}"
        if command == "L" and last is not None and y == last[1]:
            return f"H{x}"
        return f"{command}{x} {y}"

    is_polygon = not re.search(r"[CQA]", found)
    return re.sub(r"([ML]) (\S+) ([^\s\"]+) ?", along_axis, found) if is_polygon else found


def _attribute(text: str) -> str:
    from markupsafe import escape

    return str(escape(text))
