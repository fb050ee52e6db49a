"""Shows charts, hyperparameters and the report of a training in TensorBoard and other trackers.

::

    first row                               runs of other trackers: configuration, layout
    first row with an "efficiency/" tag     TensorBoard: layout of "Custom Scalars", hyperparameters
    end of the training                     runs of other trackers: last figures, without waiting
    after the training                      ``report_process.pages``: last figures, report as text,
                                              charts, end of session in TensorBoard
                                            ``RunLog.report``: last figures and files in the runs

A row is the set of figures that is logged at one step. A session is TensorBoard's record of one
training on the page "HParams". TensorBoard reads only one layout and one session per TensorBoard
run. If the TensorBoard run already has a layout, no layout is added; the same applies to a session.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from energy_callbacks.accounting.metrics.tags import own_tags, without_prefix
from energy_callbacks.core.config import settings_in_use
from energy_callbacks.core.guard import ForeignCalls
from energy_callbacks.core.settings.layers import DEFAULT
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.outputs import hparams
from energy_callbacks.outputs.layout import layout, tags_of
from energy_callbacks.outputs.protocol import Board, RunLog, Value
from energy_callbacks.outputs.run_logs import RunLogs
from energy_callbacks.report_process.pages import Pages, expected_figures
from energy_callbacks.version import __version__

Facts = Mapping[str, Value | None]
# Prefixes of the tags of a layout and of a session.
_LAYOUT, _SESSION = "custom_scalars__config__", "_hparams_/"
# Only the first bytes of each event file are searched for these tags, because a training writes
# them at its start. Only the newest files are searched, because many trainings may share a
# directory.
_HEAD_BYTES: Final = 4_000_000
_MOST_FILES: Final = 4


class Dashboard:
    """The TensorBoard pages of one training, and its runs in other experiment trackers.

    A failure is logged once and ends the pages, but not the training or the meter.

    Args:
        meter: the meter of the training.
        boards: returns the TensorBoard runs to write to, which may be an empty list; called at the
            first row with an ``efficiency/`` tag.
        facts: returns additional hyperparameters by name, ``None`` for unknown values; called at
            the same row if there is a TensorBoard run.
        runs: returns the open runs of other trackers, which may be none; called at the first row.
    """

    def __init__(
        self,
        meter: EnergyMeter,
        boards: Callable[[], Iterable[Board]] = tuple,
        facts: Callable[[], Facts] = dict,
        runs: Callable[[], Iterable[RunLog]] = tuple,
    ) -> None:
        self._meter = meter
        self._prefix = meter.config.tag_prefix
        self._ask_boards = boards
        self._ask_facts = facts
        self._ask_runs = runs
        self._runs: RunLogs | None = None
        self._facts: dict[str, Value] = {}
        self._boards: list[Board] = []
        self._compared: list[Board] = []
        self._is_due = True
        # Not tried again: what was written of a layout or a session cannot be written twice.
        self._calls = ForeignCalls(
            "no layout, hyperparameters or report in TensorBoard", meter.now_s, retries=False
        )

    def __getstate__(self) -> dict[str, object]:
        """Return the state of a dashboard without boards, so that a copy writes nothing."""
        return Dashboard(self._meter).__dict__

    def row(self, scalars: Mapping[str, float], step: int) -> None:
        """Write layout and hyperparameters if this is the first row with an ``efficiency/`` tag.

        Args:
            scalars: figures of the row by tag.
            step: step of the row.
        """
        if scalars:
            self._begin_runs()
        if self._is_due and any(tag.startswith(f"{self._prefix}efficiency/") for tag in scalars):
            self._is_due = False
            self._calls.call(lambda: self._begin(without_prefix(self._prefix, scalars), step))

    def pages(self, metrics: Callable[[], Mapping[str, float]], step: int) -> Pages | None:
        """End the training; return what the report process writes to TensorBoard.

        The result is ``None`` without a TensorBoard run. Called in ``EnergyMeter.ending``.

        Args:
            metrics: returns the last values of the user's metrics; tags of this package are
                ignored.
            step: step of the last row.
        """
        if runs := self._begin_runs():
            totals = without_prefix(self._prefix, self._meter.totals())
            runs.end(expected_figures(totals))
        if not self._boards:
            return None
        pages = self._calls.call(lambda: self._pages(metrics(), step))
        self._boards = []
        return pages

    def _begin_runs(self) -> RunLogs:
        """Return the runs of other trackers. The first call adds configuration and layout."""
        if self._runs is None:
            self._runs = RunLogs()
            calls = ForeignCalls("the run of a tracker was not found", self._meter.now_s)
            self._runs = calls.call(self._found_runs) or self._runs
        return self._runs

    def _found_runs(self) -> RunLogs:
        runs = RunLogs(self._ask_runs(), self._meter.now_s)
        if runs:
            self._meter._add_run_logs(runs)
            runs.begin(self._configuration(), self._prefix)
        return runs

    def _configuration(self) -> dict[str, Value]:
        """Return the known facts about the training, and the settings other than defaults."""
        settings = settings_in_use(self._meter.config).items()
        values = {
            "version": __version__,
            "run_id": self._meter.run_id,
            "run_folder": str(self._meter.run_folder),
            "device": _device_names(self._meter),
            **{name: found.value for name, found in settings if found.origin != DEFAULT},
            **self._ask_facts(),
        }
        return {k: v for k, v in values.items() if isinstance(v, str | float | int)}

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
                board.add(layout(tags, prefix=board.prefix + self._prefix), step)
            if _SESSION not in present:
                board.add(hparams.session_start(self._facts, time.time()), step)
                self._compared.append(board)
            board.flush()

    def _pages(self, metrics: Mapping[str, float], step: int) -> Pages:
        own = own_tags(self._prefix)
        users = {k: v for k, v in metrics.items() if k not in own and math.isfinite(v)}
        return Pages(
            folders=[board.folder for board in self._boards],
            compared=[board.folder for board in self._compared],
            facts=self._facts,
            metrics=users,
            step=step,
            unix_s=time.time(),
        )


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
