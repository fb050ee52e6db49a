"""The list of a report's charts, shared by the HTML page, the PNG files and TensorBoard.

To add a chart to every report, add a line to ``CHARTS``.
"""

from collections.abc import Iterator
from typing import Any

from energy_callbacks.report.charts import plots
from energy_callbacks.report.charts.drawing import Chart, VectorFormat, figure_png, figure_vector
from energy_callbacks.report.charts.memory_plot import memory_over_time
from energy_callbacks.report.charts.metric_plot import metric_over_energy
from energy_callbacks.report.charts.sections import batch_size_sections, profile_sections
from energy_callbacks.report.model.schema import EnergyReport

# Default width of a picture in inches, and its resolution in dots per inch. A picture is then 1504
# pixels wide, and its text is readable on paper.
PICTURE_IN, PICTURE_DPI = 9.4, 160.0
# Width of a figure for a paper in inches: that of the text on US letter paper with margins of one
# inch. At this width, labels have 9 points.
PAPER_IN = 6.5

CHARTS: tuple[Chart, ...] = (
    Chart(name="power", title="Power over time", draw=plots.power_over_time),
    Chart(name="phases", title="Energy by phase", draw=plots.energy_by_phase),
    Chart(name="metrics", title="Metric over energy", draw=metric_over_energy),
    Chart(name="memory", title="Memory over time", draw=memory_over_time),
    Chart(name="phase_power", title="Mean power by phase", draw=plots.power_by_phase),
)


def pictures(
    report: EnergyReport, *, width_in: float = PICTURE_IN, dpi: float = PICTURE_DPI
) -> Iterator[tuple[str, bytes]]:
    """Yield name and PNG of each chart, including those of batch-size searches and profiles.

    Charts with nothing to draw are left out.

    Args:
        report: the report.
        width_in: width of a picture in inches.
        dpi: dots per inch.
    """
    run = report.run.name or f"run {report.run.run_id}"
    for chart, figure in _figures(report, width_in):
        yield chart.name, figure_png(figure, title=f"{chart.title} · {run}", dpi=dpi)


def vector_graphics(report: EnergyReport, kind: VectorFormat) -> Iterator[tuple[str, bytes]]:
    """Yield file name and content of each chart as a vector graphic for a paper."""
    for chart, figure in _figures(report, PAPER_IN):
        yield f"{chart.name}.{kind}", figure_vector(figure, kind)


def _figures(report: EnergyReport, width_in: float) -> Iterator[tuple[Chart, Any]]:
    """Yield each chart of a report with its figure, except charts with nothing to draw."""
    sections = (*batch_size_sections(report), *profile_sections(report.profile))
    for chart in (*CHARTS, *(section.chart for section in sections if section.chart)):
        figure = chart.figure(report, width_in)
        if figure is not None:
            yield chart, figure
