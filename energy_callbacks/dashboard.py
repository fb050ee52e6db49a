"""Shows charts, hyperparameters and the report of a training in TensorBoard.

::

    first row with an "efficiency/" tag     layout of "Custom Scalars", hyperparameters
    end of the training                     last figures, report as text, charts, end of session

A row is the set of figures that is logged at one step. A session is TensorBoard's record of one
training on the page "HParams". TensorBoard reads only one layout and one session per TensorBoard
run. If the TensorBoard run already has a layout, no layout is added; the same applies to a session.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from energy_callbacks.accounting.metrics.tags import OWN_TAGS
from energy_callbacks.core.guard import pass_on_signals
from energy_callbacks.core.units import grams, watt_hours
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.outputs import hparams, summaries
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
"""Tags of figures from the report, by which trainings are compared, and their descriptions."""

Facts = Mapping[str, hparams.Value | None]
# Prefixes of the tags of a layout and of a session.
_LAYOUT, _SESSION = "custom_scalars__config__", "_hparams_/"
# Only the first bytes of each event file are searched for these tags, because a training writes
# them at its start. Only the newest files are searched, because many trainings may share a
# directory.
_HEAD_BYTES: Final = 4_000_000
_MOST_FILES: Final = 4
# Metrics that are listed first, because TensorBoard 2.21 shows only five metrics unless the user
# selects others.
_FIRST = ("final/total_wh", "final/total_j_per_sample", "final/emissions_g")
# Width of a picture in inches. A picture on the page "Images" is shown about 300 points wide.
_PICTURE_IN = 4.2


class Dashboard:
    """The TensorBoard pages of one training.

    A failure is logged once and ends the dashboard, but not the training or the meter.

    Args:
        meter: the meter of the training.
        boards: returns the TensorBoard runs to write to, which may be an empty list; called at the
            first row with an ``efficiency/`` tag.
        facts: returns additional hyperparameters by name, ``None`` for unknown values; called at
            the same row if there is a TensorBoard run.
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
        self._is_due = True

    def __getstate__(self) -> dict[str, object]:
        """Return the state of a dashboard without boards, so that a copy writes nothing."""
        return Dashboard(self._meter).__dict__

    def row(self, scalars: Mapping[str, float], step: int) -> None:
        """Write layout and hyperparameters if this is the first row with an ``efficiency/`` tag.

        Args:
            scalars: figures of the row by tag.
            step: step of the row.
        """
        if self._is_due and any(tag.startswith("efficiency/") for tag in scalars):
            self._is_due = False
            self._safely(lambda: self._begin(scalars, step))

    def end(self, metrics: Callable[[], Mapping[str, float]], step: int) -> None:
        """Write the last figures and the report of a training; the report must have been saved.

        Args:
            metrics: returns the last values of the user's metrics; tags of this package are
                ignored.
            step: step of the last row.
        """
        if self._boards:
            self._safely(lambda: self._end(metrics(), step))
            self._boards = []

    def _safely(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:
            pass_on_signals()
            self._boards = []
            logger.warning("no layout, hyperparameters or report in TensorBoard", exc_info=True)

    def _begin(self, scalars: Mapping[str, float], step: int) -> None:
        self._boards = list(self._ask_boards())
        if not self._boards:
            return
        tags = tags_of(scalars)
        facts = {**self._ask_facts(), "device": _device_names(self._meter)}
        self._facts = {name: value for name, value in facts.items() if value is not None}
        for board in self._boards:
            board.flush()
            present = _texts_in(board.folder, (_LAYOUT, _SESSION))
            if _LAYOUT not in present:
                board.add(layout(tags, prefix=board.prefix), step)
            if _SESSION not in present:
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
            if name not in OWN_TAGS and math.isfinite(value)
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


def _texts_in(folder: str, texts: Iterable[str]) -> set[str]:
    """Return the ``texts`` that occur at the start of the newest event files of a TensorBoard run.

    Protocol buffers store text unchanged, so a tag can be found without parsing (Protocol Buffers,
    "Encoding", length-delimited records). Remote directories, such as ``gs://``, are not searched.
    """
    heads = []
    for path in sorted(Path(folder).glob("events.out.tfevents.*"))[-_MOST_FILES:]:
        with path.open("rb") as file:
            heads.append(file.read(_HEAD_BYTES))
    return {text for text in texts if any(text.encode() in head for head in heads)}


def _device_names(meter: EnergyMeter) -> str | None:
    """Return the names of the GPUs, such as ``8 x NVIDIA H200``; of the CPUs if there is no GPU."""
    for kind in ("gpu", "cpu"):
        names = Counter(device.name for device in meter.devices if device.kind == kind)
        if names:
            return ", ".join(name if n == 1 else f"{n} x {name}" for name, n in names.items())
    return None


def _last_figures(report: EnergyReport) -> dict[str, float]:
    """Return the known figures of ``FINAL`` by tag; unresolved energies are left out."""
    total, efficiencies = report.energy.total, report.efficiency
    last = {}
    if total.energy_j is not None and total.is_resolved:
        last["final/total_wh"] = watt_hours(total.energy_j)
    for scope, efficiency in (("gpu", efficiencies.gpu), ("total", efficiencies.total)):
        for unit, ratio in (("sample", efficiency.j_per_sample), ("token", efficiency.j_per_token)):
            if ratio is not None and ratio.is_resolved:
                last[f"final/{scope}_j_per_{unit}"] = ratio.value_j
    if report.emissions is not None and report.emissions.kg is not None:
        last["final/emissions_g"] = grams(report.emissions.kg)
    return last


def _pages(report: EnergyReport) -> Iterator[object]:
    """Yield TensorBoard summaries: the report as text, and its charts as pictures."""
    from energy_callbacks.report.charts import catalogue
    from energy_callbacks.report.render import text

    yield summaries.verbatim("energy_report", text.render(report))
    for name, png in catalogue.pictures(report, width_in=_PICTURE_IN, dpi=100.0):
        yield summaries.image(f"energy_report/{name}", png)
