"""Writes the pages of a training in TensorBoard that need its report."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from energy_callbacks.core.units import grams, watt_hours
from energy_callbacks.outputs import hparams, summaries
from energy_callbacks.outputs.protocol import Value
from energy_callbacks.outputs.tensorboard import TensorBoardOutput

if TYPE_CHECKING:
    from energy_callbacks.report import EnergyReport

FINAL: Final = {
    "final/total_wh": "energy of GPUs and host, Wh",
    "final/emissions_g": "emissions, gCO2e; absent without a location",
    "final/gpu_j_per_sample": "GPU energy of training per sample, J",
    "final/gpu_j_per_token": "GPU energy of training per token, J",
    "final/total_j_per_sample": "total energy of training per sample, J",
    "final/total_j_per_token": "total energy of training per token, J",
}
"""Tags of figures from the report, by which trainings are compared, and their descriptions."""

# Metrics that are listed first, because TensorBoard 2.21 shows only five metrics unless the user
# selects others.
_FIRST = ("final/total_wh", "final/total_j_per_sample", "final/emissions_g")
# Tags of the same figures in rows; those of other figures begin with ``efficiency/``.
_SOURCES = {"final/total_wh": "energy/total_wh", "final/emissions_g": "emissions/total_g"}
# Width of a picture in inches. A picture on the page "Images" is shown about 300 points wide.
_PICTURE_IN = 4.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """The last figures, the report as text and pictures, and the end of the session on "HParams".

    They are written to an event file of their own, because the training's writer is closed by then.

    Attributes:
        folders: the TensorBoard run directories to write to; those in the cloud, such as
            ``gs://bucket/run``, are left out.
        compared: those of them in which our session on the page "HParams" began.
        facts: hyperparameters of this session.
        metrics: last values of the user's metrics, by name.
        step: step of the last row.
        unix_s: wall time of the end of the training, which the name of the event file contains.
    """

    folders: Sequence[str]
    compared: Sequence[str]
    facts: Mapping[str, Value]
    metrics: Mapping[str, float]
    step: int
    unix_s: float

    def write(self, report: "EnergyReport") -> None:
        """Write the pages of a report."""
        users = {f"final/{name}": value for name, value in self.metrics.items()}
        last = users | last_figures(report)
        columns = sorted(last, key=lambda tag: (tag not in _FIRST, tag not in users))
        found = [summaries.scalars(last), *_of_report(report)]
        is_success = report.run.status == "finished"
        end = (
            hparams.experiment(self.facts, columns, time.time()),
            hparams.session_end(self.unix_s, is_success=is_success),
        )
        for folder in (one for one in self.folders if "://" not in one):
            output = TensorBoardOutput(folder, opened_unix_s=math.floor(self.unix_s))
            for summary in (*found, *(end if folder in self.compared else ())):
                output.add(summary, self.step)
            output.close()


def expected_figures(totals: Mapping[str, float]) -> dict[str, float]:
    """Return the figures of ``FINAL`` at the end of a training, before there is a report.

    They may differ from those of the report: see ``EnergyMeter.ending``. In a resumed run, figures
    per sample and token are those of the last attempt alone.

    Args:
        totals: figures of the whole training by tag.
    """
    sources = {tag: tag.replace("final/", "efficiency/") for tag in FINAL} | _SOURCES
    return {tag: totals[source] for tag, source in sources.items() if source in totals}


def last_figures(report: "EnergyReport") -> dict[str, float]:
    """Return the known figures of ``FINAL`` by tag; those of unresolved energies are left out."""
    total, efficiencies, emissions = report.energy.total, report.efficiency, report.emissions
    last = {}
    if total.energy_j is not None and total.is_resolved:
        last["final/total_wh"] = watt_hours(total.energy_j)
    for scope, efficiency in (("gpu", efficiencies.gpu), ("total", efficiencies.total)):
        for unit, ratio in (("sample", efficiency.j_per_sample), ("token", efficiency.j_per_token)):
            if ratio is not None and ratio.is_resolved:
                last[f"final/{scope}_j_per_{unit}"] = ratio.value_j
    if emissions is not None and emissions.kg is not None and total.is_resolved:
        last["final/emissions_g"] = grams(emissions.kg)
    return last


def _of_report(report: "EnergyReport") -> Iterator[object]:
    """Yield TensorBoard summaries: the report as text, and its charts as pictures."""
    from energy_callbacks.report.charts import catalogue
    from energy_callbacks.report.charts.drawing import why_left_out
    from energy_callbacks.report.render import text

    yield summaries.verbatim("energy_report", text.render(report))
    if why_left_out():
        return
    for name, png in catalogue.pictures(report, width_in=_PICTURE_IN, dpi=100.0):
        yield summaries.image(f"energy_report/{name}", png)
