"""Builds interactive figures as JSON for Plotly: curves over time and batch-size searches."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, Final, NamedTuple

from energy_callbacks.core import formatting
from energy_callbacks.core.units import BYTES_PER_GIBIBYTE, watt_hours
from energy_callbacks.report.charts.batch_size_plot import PANELS, columns_of, points_that_ran
from energy_callbacks.report.charts.drawing import time_unit
from energy_callbacks.report.charts.palette import GRID, INK, PAPER, SCOPE_COLOURS, phase_colours
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve
from energy_callbacks.report.model.curves import Series, Span
from energy_callbacks.report.model.runs import DeviceUse
from energy_callbacks.report.model.schema import EnergyReport

Values = Sequence[float | None]
Plot = dict[str, Any]

_GREYS: Final = ("#5b6b79", "#9dacb9", "#34434f", "#b9c4cd")
_GIB_PER_BYTE: Final = 1.0 / BYTES_PER_GIBIBYTE
_PANEL_PX: Final = 210
# Heights of the strip of phases and of the gap between panels, as fractions of a panel's height.
_STRIP, _GAP = 0.16, 0.13


class _Panel(NamedTuple):
    """A panel that shows one quantity over time.

    Attributes:
        title: quantity and unit.
        shown: Plotly's format string for a value.
        values: function that returns the values of a curve, one for each bin (``None`` where
            unknown), or no values if the quantity was not measured.
        first: value at the start of the curve, if ``values`` returns the values at the ends of
            the bins; ``None`` if each value holds for its whole bin.
    """

    title: str
    shown: str
    values: Callable[[Series], Values]
    first: float | None = None


def _cumulative_wh(curve: Series) -> Values:
    if all(power_w is None for power_w in curve.power_w):
        return ()
    pairs = zip(curve.seen_s, curve.power_w, strict=True)
    joules = itertools.accumulate(known_s * (power_w or 0.0) for known_s, power_w in pairs)
    return [watt_hours(energy_j) for energy_j in joules]


def _times(factor: float, values: Values) -> Values:
    return [None if value is None else factor * value for value in values]


def _throttled_percent(curve: Series) -> Values:
    """Return the percentage of each bin in which the clocks were throttled."""
    lengths_s = (end_s - start_s for start_s, end_s in itertools.pairwise((0.0, *curve.t_s)))
    return [
        None if held_s is None or length_s <= 0.0 else min(100.0 * held_s / length_s, 100.0)
        for held_s, length_s in zip(curve.throttled_s, lengths_s, strict=False)
    ]


_PANELS: Final = (
    _Panel("power (W)", "%{y:.1f} W", lambda curve: curve.power_w),
    _Panel("energy (Wh)", "%{y:.4g} Wh", _cumulative_wh, first=0.0),
    _Panel("memory (GiB)", "%{y:.2f} GiB", lambda curve: _times(_GIB_PER_BYTE, curve.memory_bytes)),
    _Panel("busy (%)", "busy %{y:.0f} %", lambda curve: _times(100.0, curve.utilisation)),
    _Panel("temperature (°C)", "%{y:.0f} °C", lambda curve: curve.temperature_c),
    _Panel("throttled (%)", "throttled %{y:.1f} %", _throttled_percent),
)


def over_time(report: EnergyReport) -> Plot | None:
    """Return a figure with one panel for each known quantity, below a strip of phases.

    All panels share a time axis, so that they zoom together. The result is ``None`` if no quantity
    is known.
    """
    panels = [panel for panel in _PANELS if any(_is_known(panel, one) for one in report.series)]
    if not panels:
        return None
    end_s = max(curve.t_s[-1] for curve in report.series)
    scale_s, unit = time_unit(end_s)
    parts = _STRIP + len(panels) * (1.0 + _GAP)
    layout = _layout(round(_PANEL_PX * parts) + 90) | {
        "barmode": "overlay",
        "hovermode": "x unified",
        "hoversubplots": "axis",
        "xaxis": _axis(
            title={"text": f"time measured ({unit})"},
            anchor=f"y{len(panels) + 1}",
            range=[0.0, end_s / scale_s],
            hoverformat=".2f",
        ),
        "yaxis": _axis(domain=[1.0 - _STRIP / parts, 1.0], fixedrange=True),
    }
    for number, panel in enumerate(panels):
        top = 1.0 - (_STRIP + number * (1.0 + _GAP) + _GAP) / parts
        domain = [max(top - 1.0 / parts, 0.0), top]
        title = {"text": panel.title}
        layout[f"yaxis{number + 2}"] = _axis(domain=domain, title=title, rangemode="tozero")
    lines = _lines(report, panels, scale_s)
    return {"data": [*_phases(report.timeline, scale_s), *lines], "layout": layout}


def _is_known(panel: _Panel, curve: Series) -> bool:
    return any(value is not None for value in panel.values(curve))


def _phases(timeline: Sequence[Span], scale_s: float) -> Iterator[Plot]:
    """Yield one trace of Plotly for each phase, with a bar for each of its spans."""
    for phase, colour in phase_colours([span.phase for span in timeline]).items():
        spans = [span for span in timeline if span.phase == phase]
        lengths_s = [span.end_s - span.start_s for span in spans]
        yield {
            "type": "bar",
            "orientation": "h",
            "y": ["phase"] * len(spans),
            "base": [span.start_s / scale_s for span in spans],
            "x": [length_s / scale_s for length_s in lengths_s],
            "customdata": [formatting.duration(length_s) for length_s in lengths_s],
            "hovertemplate": "for %{customdata}",
            "name": _name(phase),
            "marker": {"color": colour, "line": {"width": 0}},
            "width": 1.0,
        }


def _lines(report: EnergyReport, panels: Sequence[_Panel], scale_s: float) -> Iterator[Plot]:
    """Yield the lines of all devices; the legend toggles a device in all panels."""
    devices = {(device.host, device.key): device for device in report.devices}
    has_hosts = len({device.host for device in report.devices}) > 1
    shades = {scope: itertools.cycle(colours) for scope, colours in SCOPE_COLOURS.items()}
    others = itertools.cycle(_GREYS)
    for curve in report.series:
        device = devices[curve.host, curve.key]
        name = _device_name(device, has_hosts)
        look = {
            "color": next(shades.get(device.scope or "", others)),
            "width": 1.5,
            "dash": "dot" if device.origin == "estimated" else "solid",
        }
        is_first = True
        for number, panel in enumerate(panels, start=2):
            if _is_known(panel, curve):
                yield {
                    "name": name,
                    "legendgroup": _name(f"{curve.host} {curve.key}"),
                    "line": look | {"shape": "vh" if panel.first is None else "linear"},
                    **_points(curve, panel, scale_s),
                    "yaxis": f"y{number}",
                    "showlegend": is_first,
                }
                is_first = False


def _points(curve: Series, panel: _Panel, scale_s: float) -> Plot:
    start_s = max(curve.t_s[0] - curve.seen_s[0], 0.0)
    values = panel.values(curve)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [t_s / scale_s for t_s in (start_s, *curve.t_s)],
        "y": [values[0] if panel.first is None else panel.first, *values],
        "hovertemplate": panel.shown,
    }


def _device_name(device: DeviceUse, has_hosts: bool) -> str:
    name = _name(f"{device.key} {device.host if has_hosts else device.name}")
    return f"{name}, estimated" if device.origin == "estimated" else name


def _name(text: str, length: int = 40) -> str:
    """Return up to ``length`` characters of a text, escaped because Plotly interprets HTML."""
    return escape(formatting.clipped(text, length), quote=False)


def batch_sizes(curve: BatchSizeCurve) -> Plot | None:
    """Return a figure of throughput, energy per sample and memory by batch size, side by side.

    A dotted line marks the chosen size. The result is ``None`` if no size fits in memory.
    """
    ran = points_that_ran(curve)
    if not ran:
        return None
    layout: Plot = _layout(340) | {"showlegend": False}
    data = []
    for number, panel in enumerate(PANELS):
        axis = str(number + 1) if number else ""
        sizes, values, errors = columns_of(panel, ran)
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": sizes,
                "y": values,
                "error_y": {"type": "data", "array": errors},
                "line": {"color": panel.colour},
                "hovertemplate": "%{x}: %{y:.4g}<extra></extra>",
                "xaxis": f"x{axis}",
                "yaxis": f"y{axis}",
            }
        )
        title = {"text": panel.title}
        layout[f"yaxis{axis}"] = _axis(title=title, anchor=f"x{axis}", rangemode="tozero")
        layout[f"xaxis{axis}"] = _axis(
            title={"text": "batch size"},
            anchor=f"y{axis}",
            domain=[0.36 * number, 0.36 * number + 0.28],
            matches="x" if number else None,
            type="log",
            tickvals=[point.size for point in ran],
        )
    marked = [] if curve.size is None else ["x", "x2", "x3"]
    layout["shapes"] = [_line_at(curve.size, axis) for axis in marked]
    return {"data": data, "layout": layout}


def _line_at(size: int | None, x_axis: str) -> Plot:
    place = {"xref": x_axis, "yref": "paper", "x0": size, "x1": size, "y0": 0, "y1": 1}
    return {"type": "line", **place, "line": {"color": INK, "width": 1, "dash": "dot"}}


def _layout(height_px: int) -> Plot:
    return {
        "height": height_px,
        "margin": {"l": 70, "r": 50, "t": 10, "b": 50},
        "modebar": {"orientation": "v"},
        "paper_bgcolor": PAPER,
        "plot_bgcolor": PAPER,
        "font": {"family": "system-ui, 'DejaVu Sans', sans-serif", "size": 12, "color": INK},
        "legend": {"groupclick": "togglegroup", "orientation": "h", "y": 1.01, "yanchor": "bottom"},
    }


def _axis(**more: Any) -> Plot:
    return {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, **more}
