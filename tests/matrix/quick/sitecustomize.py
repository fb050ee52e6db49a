"""Leaves out all charts in programs of ours that have this folder in PYTHONPATH."""

import sys

if "energy_callbacks" in sys.orig_argv:
    from energy_callbacks.matrix import picture
    from energy_callbacks.report import charts, html
    from energy_callbacks.report.comparison import page, plots

    charts.CHARTS = html.CHARTS = page.CHARTS = plots.CHARTS = ()
    picture.energies_figure = lambda *_, **__: None
