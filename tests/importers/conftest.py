"""Fixtures of reports."""

from tests.report.conftest import (  # noqa: F401 - fixtures
    browser,
    no_charts,
    no_charts_of_comparisons,
    plain_page,
    report,
    run_folder,
    tuned,
)
