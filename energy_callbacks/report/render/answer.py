"""Builds what a report says first: one sentence with energy, cost, emissions and measured share."""

from collections.abc import Mapping
from typing import Final

from energy_callbacks.core import formatting
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.amounts import Figure
from energy_callbacks.report.model.runs import ReportWarning, Status
from energy_callbacks.report.model.schema import EnergyReport

# First words of the sentence.
_SUBJECTS: Final[Mapping[Status, str]] = {
    "finished": "The run",
    "running": "So far, the run",
    "failed": "Until it failed, the run",
    "interrupted": "Until it was interrupted, the run",
    "cut off": "Until it stopped unexpectedly, the run",
}
# Codes of the notes on statistics, which the HTML page shows together with the other statistics.
STATISTICS: Final = ("short_span",)


def answer(report: EnergyReport) -> str:
    """Return the result of the run in one sentence.

    For example: ``The run used 10.67 ± 0.11 Wh, cost 0.00320 (at 0.3 per kWh) and caused 4.06
    gCO2e (Germany); 82.3 % of the energy was measured, the rest is estimated.``
    """
    subject, total = _SUBJECTS[report.run.status], report.energy.total
    if total.energy_j is None:
        return f"{subject} used an unknown amount of energy; cost and emissions are not known."
    energy = figure_format.energy_with_error(total)
    if not total.is_resolved:
        bound = figure_format.figure(total).removeprefix("< ")
        energy = f"less than {bound} (too short to measure)"
    elif figure_format.is_order_only(total):
        energy = f"{energy} ({figure_format.ORDER_ONLY})"
    clauses = [f"{subject} used {energy}{_cost_and_emissions(report)}", _measured(report, total)]
    return f"{'; '.join(clauses)}."


def _cost_and_emissions(report: EnergyReport) -> str:
    emissions, cost = report.emissions, report.cost
    caused = "caused unknown emissions"
    if emissions is not None:
        place = figure_format.location(emissions)
        caused = f"caused {figure_format.emissions(emissions)} ({place})"
    if cost is None:
        return f" and {caused}; its cost is not known (no price set)"
    price = f"at {figure_format.price(cost)}"
    return f", cost {figure_format.money(cost)} ({price}) and {caused}"


def _measured(report: EnergyReport, total: Figure) -> str:
    if total.origin == "measured":
        return "all of the energy was measured"
    if total.origin == "estimated":
        return "the energy is estimated by models, not measured"
    share = formatting.percent(report.measured_fraction)
    return f"{share} of the energy was measured, the rest is estimated"


def warnings(report: EnergyReport) -> list[ReportWarning]:
    """Return the warnings after which the total is not the energy of the whole run."""
    return [one for one in report.warnings if one.invalidates_total]


def notes(report: EnergyReport) -> list[ReportWarning]:
    """Return all other warnings: notes on the numbers."""
    return [one for one in report.warnings if not one.invalidates_total]
