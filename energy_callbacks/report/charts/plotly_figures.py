"""What Plotly draws, as its JSON: curves over one time axis, and searches for a batch size."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, Final, NamedTuple

from energy_callbacks.core import formatting
from energy_callbacks.core.units import gibibytes, watt_hours
from energy_callbacks.report.charts.palette import BLUES, GRID, INK, ORANGES, PAPER, phase_colours
from energy_callbacks.report.charts.plots import time_unit
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve, BatchSizePoint
from energy_callbacks.report.model.models import DeviceUse, Series, Span
from energy_callbacks.report.model.schema import EnergyReport

Values = Sequence[float | None]
Plot = dict[str, Any]

_GREYS: Final = ("#5b6b79", "#9dacb9", "#34434f", "#b9c4cd")
_GREEN: Final = "#009e73"
_PANEL_PX: Final = 210
# In heights of a panel: the strip of phases, and what lies between two panels.
_STRIP, _GAP = 0.16, 0.13


class _Panel(NamedTuple):
    """A quantity over time.

    ``shown`` is how one value is written, ``values`` those at the ends of a curve's bins; ``first``
    is the value at its beginning, ``None`` if a value holds for its whole bin.
    """

    title: str
    shown: str
    values: Callable[[Series], Values]
    first: float | None = None


def _cumulative_wh(curve: Series) -> Values:
    if not any(power_w is not None for power_w in curve.power_w):
        return ()
    pairs = zip(curve.seen_s, curve.power_w, strict=True)
    joules = itertools.accumulate(seen_s * (power_w or 0.0) for seen_s, power_w in pairs)
    return [watt_hours(energy_j) for energy_j in joules]


def _memory_gib(curve: Series) -> Values:
    return [None if size is None else gibibytes(size) for size in curve.memory_bytes]


def _utilisation_percent(curve: Series) -> Values:
    return [None if share is None else 100.0 * share for share in curve.utilisation]


def _throttled_percent(curve: Series) -> Values:
    """Share of each bin in which the clocks were held down."""
    lengths_s = (end_s - start_s for start_s, end_s in itertools.pairwise((0.0, *curve.t_s)))
    return [
        None if held_s is None or length_s <= 0.0 else min(100.0 * held_s / length_s, 100.0)
        for held_s, length_s in zip(curve.throttled_s, lengths_s, strict=False)
    ]


_PANELS: Final = (
    _Panel("power (W)", "%{y:.1f} W", lambda curve: curve.power_w),
    _Panel("energy (Wh)", "%{y:.4g} Wh", _cumulative_wh, first=0.0),
    _Panel("memory (GiB)", "%{y:.2f} GiB", _memory_gib),
    _Panel("busy (%)", "busy %{y:.0f} %", _utilisation_percent),
    _Panel("temperature (°C)", "%{y:.0f} °C", lambda curve: curve.temperature_c),
    _Panel("throttled (%)", "throttled %{y:.1f} %", _throttled_percent),
)


def over_time(report: EnergyReport) -> Plot | None:
    """The phases, and below them a panel for each quantity of which something is known.

    All panels have one time axis, so that they are zoomed together.
    """
    panels = [panel for panel in _PANELS if any(map(_knows(panel), report.series))]
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


def _knows(panel: _Panel) -> Callable[[Series], bool]:
    return lambda curve: any(value is not None for value in panel.values(curve))


def _phases(timeline: Sequence[Span], scale_s: float) -> Iterator[Plot]:
    """A bar for each span, in the colours of the page."""
    for phase, colour in phase_colours([span.phase for span in timeline]).items():
        spans = [span for span in timeline if span.phase == phase]
        yield {
            "type": "bar",
            "orientation": "h",
            "y": ["phase"] * len(spans),
            "base": [span.start_s / scale_s for span in spans],
            "x": [(span.end_s - span.start_s) / scale_s for span in spans],
            "customdata": [formatting.duration(span.end_s - span.start_s) for span in spans],
            "hovertemplate": "for %{customdata}",
            "name": _name(phase),
            "marker": {"color": colour, "line": {"width": 0}},
            "width": 1.0,
        }


def _lines(report: EnergyReport, panels: Sequence[_Panel], scale_s: float) -> Iterator[Plot]:
    """A line for each device in each panel; the legend shows and hides a device in all of them."""
    devices = {(device.host, device.key): device for device in report.devices}
    has_hosts = len({device.host for device in report.devices}) > 1
    shades = {"gpu": itertools.cycle(BLUES), "host": itertools.cycle(ORANGES)}
    others = itertools.cycle(_GREYS)
    for curve in report.series:
        device = devices[curve.host, curve.key]
        common = {
            "name": _device(device, has_hosts),
            "legendgroup": _name(f"{curve.host} {curve.key}"),
            "line": {
                "color": next(shades.get(device.scope or "", others)),
                "width": 1.5,
                "dash": "dot" if device.origin == "estimated" else "solid",
            },
        }
        known = [(n, panel) for n, panel in enumerate(panels, start=2) if _knows(panel)(curve)]
        for place, (number, panel) in enumerate(known):
            line = _line(curve, panel, scale_s)
            line["line"] = common["line"] | line["line"]
            yield common | line | {"yaxis": f"y{number}", "showlegend": place == 0}


def _line(curve: Series, panel: _Panel, scale_s: float) -> Plot:
    start_s = max(curve.t_s[0] - curve.seen_s[0], 0.0)
    values = panel.values(curve)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [t_s / scale_s for t_s in (start_s, *curve.t_s)],
        "y": [values[0] if panel.first is None else panel.first, *values],
        "line": {"shape": "vh" if panel.first is None else "linear"},
        "hovertemplate": panel.shown,
    }


def _device(device: DeviceUse, has_hosts: bool) -> str:
    name = _name(f"{device.key} {device.host if has_hosts else device.name}")
    return f"{name}, estimated" if device.origin == "estimated" else name


def _name(text: str, length: int = 40) -> str:
    """A name as Plotly shows it, which reads tags in every text."""
    clean = formatting.one_line(text)
    return escape(clean if len(clean) <= length else f"{clean[: length - 1]}…", quote=False)


def batch_sizes(curve: BatchSizeCurve) -> Plot | None:
    """Throughput, joules a sample and memory over the size, side by side; the answer is marked."""
    ran = sorted((point for point in curve.points if point.fits), key=lambda point: point.size)
    if not ran:
        return None
    layout: Plot = _layout(340) | {"showlegend": False}
    data = []
    for number, (title, colour, measure) in enumerate(_SIZE_PANELS):
        axis = str(number + 1) if number else ""
        known = [(point.size, *found) for point in ran if (found := measure(point)) is not None]
        data.append(_size_line(known, colour) | {"xaxis": f"x{axis}", "yaxis": f"y{axis}"})
        layout[f"yaxis{axis}"] = _axis(title={"text": title}, anchor=f"x{axis}", rangemode="tozero")
        layout[f"xaxis{axis}"] = _axis(
            title={"text": "batch size"},
            anchor=f"y{axis}",
            domain=[0.36 * number, 0.36 * number + 0.28],
            matches="x" if number else None,
            type="log",
            tickvals=[point.size for point in ran],
        )
    layout["shapes"] = (
        [] if curve.size is None else [_mark(curve.size, x) for x in ("x", "x2", "x3")]
    )
    return {"data": data, "layout": layout}


def _size_line(known: Sequence[tuple[float, float, float]], colour: str) -> Plot:
    sizes, values, errors = ([row[column] for row in known] for column in range(3))
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": sizes,
        "y": values,
        "error_y": {"type": "data", "array": errors},
        "line": {"color": colour},
        "hovertemplate": "%{x}: %{y:.4g}<extra></extra>",
    }


def _mark(size: int, x_axis: str) -> Plot:
    place = {"xref": x_axis, "yref": "paper", "x0": size, "x1": size, "y0": 0, "y1": 1}
    return {"type": "line", **place, "line": {"color": INK, "width": 1, "dash": "dot"}}


_Measured = tuple[float, float] | None


def _throughput(point: BatchSizePoint) -> _Measured:
    speed = point.samples_per_s
    return None if speed is None else (speed, point.samples_per_s_error or 0.0)


def _joules(point: BatchSizePoint) -> _Measured:
    found = point.j_per_sample
    if found is None or not found.is_resolved:
        return None
    return found.value_j, found.high_j - found.value_j


def _peak_gib(point: BatchSizePoint) -> _Measured:
    return None if point.peak_bytes is None else (gibibytes(point.peak_bytes), 0.0)


_SIZE_PANELS: Final = (
    ("samples/s", BLUES[0], _throughput),
    ("J/sample", ORANGES[2], _joules),
    ("peak memory (GiB)", _GREEN, _peak_gib),
)


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
