"""Renders the curves of a report with Plotly, as an interactive page that needs no network.

This page is a separate file that is written only on request, because it includes Plotly's library
of 5 MB. The page without scripts (``html``) can be sent by e-mail and opened everywhere.
"""

from collections.abc import Iterator
from typing import Any, Final

from energy_callbacks.core.extras import requires
from energy_callbacks.report.charts.plotly_figures import batch_sizes, over_time
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render import answer, html
from energy_callbacks.report.render.headline import cards

# By default, Plotly 7 offers to send a chart to a server of the company Plotly.
_CONFIG: Final = {
    "displaylogo": False,
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": ["sendChartToCloud", "sendDataToCloud", "select2d", "lasso2d"],
}


def render(report: EnergyReport) -> str:
    """Return the interactive HTML page of a report.

    Raises:
        MissingExtraError: if Plotly is not installed.
    """
    return html.template("energy_report_interactive.html").render(
        report=report,
        answer=answer.answer(report),
        warnings=answer.warnings(report),
        cards=cards(report),
        plots=list(_plots(report)),
        title=report.run.name or f"run {report.run.run_id}",
    )


def _plots(report: EnergyReport) -> Iterator[dict[str, Any]]:
    """Yield title and markup of each chart; the first markup includes Plotly's library."""
    from markupsafe import Markup

    with requires("plotly", extra="interactive"):
        from plotly.io import to_html
    drawn = [("Over time", over_time(report))]
    drawn += [(f"Batch size: {curve.why}", batch_sizes(curve)) for curve in report.batch_sizes]
    known = [(title, figure) for title, figure in drawn if figure is not None]
    for number, (title, figure) in enumerate(known):
        # Plotly itself escapes <, > and / of names in its JSON.
        markup = to_html(
            figure,
            full_html=False,
            include_plotlyjs=number == 0,
            div_id=f"plot-{number}",
            config=_CONFIG,
        )
        yield {"title": title, "markup": Markup(markup)}  # noqa: S704
