"""Draws the power and the throughput of a report over time."""

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from energy_callbacks.inference.serve.report import ServeReport
from energy_callbacks.report.charts.drawing import add_legend, panels, style
from energy_callbacks.report.charts.palette import BLUES, GRID, ORANGES, PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def write_power(path: Path, report: ServeReport) -> None:
    """Draw a report to a file; its suffix, such as ``.svg`` or ``.png``, is the format."""
    canvas = power_figure(report)
    with style(salt="energy-serve"):
        metadata = {"Date": None} if path.suffix == ".svg" else None
        canvas.savefig(path, facecolor=PAPER, metadata=metadata)


def power_figure(report: ServeReport) -> "Canvas":
    """Return the figure: power and cap, and below it throughput; lines mark changes of tenants."""
    windows = [window for window, _ in report.windows]
    start_s = windows[0].start_s
    edges_s = [0.0, *(one.end_s - start_s for one in windows)]
    changes_s = [
        after.start_s - start_s
        for before, after in pairwise(windows)
        if before.point.configuration.tenants != after.point.configuration.tenants
    ]
    caps_w = [cap_w for _, cap_w in report.windows]
    with panels(11.0, 5.5, 2, 1) as (canvas, (power, throughput)):
        powers_w = [one.power_mean_w for one in windows]
        power.stairs(powers_w, edges_s, color=BLUES[0], baseline=None, label="power, mean of 1 s")
        power.stairs(caps_w, edges_s, color=ORANGES[0], baseline=None, label="cap")
        power.set(ylabel="W", ylim=(0.0, None))
        rates = [one.throughput_per_s for one in windows]
        throughput.stairs(rates, edges_s, color=BLUES[0], baseline=None, label="requests")
        throughput.set(ylabel="1/s", xlabel="s", ylim=(0.0, None))
        for axes in (power, throughput):
            for at_s in changes_s:
                axes.axvline(at_s, color=GRID, zorder=0.0)
            add_legend(axes, 2)
        simulated = " (simulated)" if report.source == "simulated" else ""
        title = f"{report.algorithm} on {report.device.removesuffix(' (simulated)')}{simulated}"
        canvas.suptitle(title, x=0.01, ha="left", fontsize=10.0)
    return canvas
