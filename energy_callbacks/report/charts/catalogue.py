"""The charts of a report, in one list: page, PNG files and TensorBoard have the same ones.

A new chart is one line of ``CHARTS``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from energy_callbacks.report.charts import plots
from energy_callbacks.report.charts.batch_size_plot import batch_size_figure
from energy_callbacks.report.charts.memory_plot import memory_over_time
from energy_callbacks.report.charts.metric_plot import metric_over_energy
from energy_callbacks.report.charts.profile_sections import Section, sections
from energy_callbacks.report.model.schema import EnergyReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# Inches of a picture by itself, and its points per inch: 1500 wide, readable on paper too.
PICTURE_IN, PICTURE_DPI = 9.4, 160.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart.

    Attributes:
        name: of its file and its tag.
        draw: a report, or what else it is of, and ``width_in`` give its figure; ``None`` if
            nothing is known to draw.
    """

    name: str
    title: str
    draw: "Callable[..., Canvas | None]"


CHARTS: tuple[Chart, ...] = (
    Chart(name="power", title="Power over time", draw=plots.power_over_time),
    Chart(name="phases", title="Energy by phase", draw=plots.energy_by_phase),
    Chart(name="metrics", title="Metric against energy", draw=metric_over_energy),
    Chart(name="memory", title="Memory over time", draw=memory_over_time),
    Chart(name="phase_power", title="Mean power of each phase", draw=plots.power_by_phase),
)


def pictures(
    report: EnergyReport, *, width_in: float = PICTURE_IN, dpi: float = PICTURE_DPI
) -> Iterator[tuple[str, bytes]]:
    """Name and PNG of each chart of which something is known, of searches and of profiles.

    Args:
        report: what to draw.
        width_in: of a picture, in inches.
        dpi: its points per inch.
    """
    run = report.run.name or f"run {report.run.run_id}"
    for chart in (*CHARTS, *_searches(report), *_profile(report)):
        figure = chart.draw(report, width_in=width_in)
        if figure is not None:
            yield chart.name, plots.figure_png(figure, title=f"{chart.title} · {run}", dpi=dpi)


def _searches(report: EnergyReport) -> Iterator[Chart]:
    """A chart for each search for a batch size."""
    for number, curve in enumerate(report.batch_sizes, start=1):
        yield Chart(
            name="batch_sizes" if number == 1 else f"batch_sizes_{number}",
            title="Batch size",
            draw=lambda _, *, width_in, curve=curve: batch_size_figure(curve, width_in=width_in),
        )


def _profile(report: EnergyReport) -> Iterator[Chart]:
    """The pictures of what profilers have found."""
    return (chart for one in sections(report.profile) if (chart := section_chart(one)) is not None)


def section_chart(one: Section) -> Chart | None:
    """The picture of a profile's section; ``None`` if it has none."""
    draw = one.draw
    if draw is None:
        return None
    return Chart(
        name=one.name, title=one.title, draw=lambda _, *, width_in: draw(width_in=width_in)
    )
