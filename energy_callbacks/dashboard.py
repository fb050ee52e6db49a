"""What a training shows in TensorBoard beside its curves: charts, hyperparameters, report.

::

    first row with figures per step   layout of "Custom Scalars", hyperparameters
    end, with the report              last figures, text, picture, end of the session

All of it goes into the runs that the user's training writes anyway, and from the first process
only. What a user has written there themselves stays: TensorBoard reads one layout and one session
a run, so ours are left out if there are any.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from energy_callbacks.accounting.metrics.scalars import expected_tags
from energy_callbacks.core.guard import pass_on_signals
from energy_callbacks.core.units import grams, watt_hours
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.outputs import event_files, hparams, summaries
from energy_callbacks.outputs.layout import layout, tags_of
from energy_callbacks.outputs.protocol import Board
from energy_callbacks.report import EnergyReport, load

logger = logging.getLogger("energy_callbacks")

FINAL: Final = {
    "final/total_wh": "energy of GPUs and host, Wh",
    "final/emissions_g": "gCO2e; absent where the place is unknown",
    "final/gpu_j_per_sample": "GPU energy of training per sample, J",
    "final/gpu_j_per_token": "GPU energy of training per token, J",
    "final/total_j_per_sample": "total energy of training per sample, J",
    "final/total_j_per_token": "total energy of training per token, J",
}
"""Figures of the report by which trainings are compared."""

Facts = Mapping[str, hparams.Value | None]
_OURS = frozenset(expected_tags(gpu=True, tokens=True, waits=True))
# How the tags of a layout and of a session begin.
_LAYOUT, _SESSION = "custom_scalars__config__", "_hparams_/"
# TensorBoard 2.21 shows the first five metrics until a reader asks for more.
_FIRST = ("final/total_wh", "final/total_j_per_sample", "final/emissions_g")
# A card of the page Images is some 300 points wide.
_PICTURE_IN = 4.2


class Dashboard:
    """Belongs to one training; a failure here is one warning, and ends neither rows nor measuring.

    Args:
        meter: measures the training.
        boards: runs of TensorBoard, asked for at the first row; none if the user has none.
        facts: what else distinguishes trainings, called at the end; ``None`` is not known.
    """

    def __init__(
        self,
        meter: EnergyMeter,
        boards: Callable[[], Iterable[Board]] = tuple,
        facts: Callable[[], Facts] = dict,
    ) -> None:
        self._meter = meter
        self._ask_boards = boards
        self._ask_facts = facts
        self._facts: dict[str, hparams.Value] = {}
        self._boards: list[Board] = []
        self._compared: list[Board] = []
        self._is_open = self._is_due = True

    def __getstate__(self) -> dict[str, object]:
        """A copy is in no training."""
        return Dashboard(self._meter).__dict__

    def row(self, scalars: Mapping[str, float], step: int) -> None:
        """A row of ours has been written."""
        if self._is_due and any(tag.startswith("efficiency/") for tag in scalars):
            self._is_due = False
            self._carefully(lambda: self._begin(scalars, step))

    def end(self, metrics: Callable[[], Mapping[str, float]], step: int) -> None:
        """The training has ended, and its report is saved.

        Args:
            metrics: gives the last values of the user's own; ours in it are left out.
            step: of the last row.
        """
        if self._boards and self._is_open:
            self._is_open = False
            self._carefully(lambda: self._end(metrics(), step))

    def _carefully(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception:
            pass_on_signals()
            self._is_open = False
            logger.warning("no layout, hyperparameters or report in TensorBoard", exc_info=True)

    def _begin(self, scalars: Mapping[str, float], step: int) -> None:
        self._boards = list(self._ask_boards())
        if not self._boards:
            return
        tags = tags_of(scalars)
        asked = {**self._ask_facts(), "device": _devices_in_words(self._meter)}
        self._facts = {name: value for name, value in asked.items() if value is not None}
        for board in self._boards:
            board.flush()
            held = event_files.held(board.folder, (_LAYOUT, _SESSION))
            if _LAYOUT not in held:
                board.add(layout(tags, prefix=board.prefix), step)
            if _SESSION not in held:
                board.add(hparams.session_start(self._facts, time.time()), step)
                self._compared.append(board)
            board.flush()

    def _end(self, metrics: Mapping[str, float], step: int) -> None:
        folder = self._meter.run_folder
        if folder is None:
            return
        report = load(folder / "energy_report.json")
        users = {
            f"final/{name}": value
            for name, value in metrics.items()
            if name not in _OURS and math.isfinite(value)
        }
        last = users | _last_figures(report)
        columns = sorted(last, key=lambda tag: (tag not in _FIRST, tag not in users))
        now_s = time.time()
        pages = list(_pages(report))
        for board in self._boards:
            for summary in (summaries.scalars(last), *pages):
                board.add(summary, step)
            if board in self._compared:
                board.add(hparams.experiment(self._facts, columns, now_s), step)
                is_success = report.run.status == "finished"
                board.add(hparams.session_end(now_s, is_success=is_success), step)
            board.flush()


def _devices_in_words(meter: EnergyMeter) -> str | None:
    """The GPUs that are measured, else the processors: ``8 x NVIDIA H200``."""
    for kind in ("gpu", "cpu"):
        names = Counter(device.name for device in meter.devices if device.kind == kind)
        if names:
            return ", ".join(name if n == 1 else f"{n} x {name}" for name, n in names.items())
    return None


def _last_figures(report: EnergyReport) -> dict[str, float]:
    """The report's totals and means as scalars; what is not known or not resolved is absent."""
    total, found = report.energy.total, report.efficiency
    last = {}
    if total.energy_j is not None and total.is_resolved:
        last["final/total_wh"] = watt_hours(total.energy_j)
    for scope, efficiency in (("gpu", found.gpu), ("total", found.total)):
        for unit, ratio in (("sample", efficiency.j_per_sample), ("token", efficiency.j_per_token)):
            if ratio is not None and ratio.is_resolved:
                last[f"final/{scope}_j_per_{unit}"] = ratio.value_j
    if report.emissions is not None and report.emissions.kg is not None:
        last["final/emissions_g"] = grams(report.emissions.kg)
    return last


def _pages(report: EnergyReport) -> Iterator[object]:
    """The report as text, and its charts as pictures."""
    from energy_callbacks.report.charts import catalogue
    from energy_callbacks.report.render import text

    yield summaries.verbatim("energy_report", text.render(report))
    for name, png in catalogue.pictures(report, width_in=_PICTURE_IN, dpi=100.0):
        yield summaries.image(f"energy_report/{name}", png)
