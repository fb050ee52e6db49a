"""Passes our figures to the trainer's other callbacks, and hides figures from some callbacks.

The Trainer places callbacks for loggers before the user's callbacks, such as ours, and passes the
same dictionary of logs (a row) to all callbacks. Therefore our callback moves to the front of the
list and adds our figures to the dictionary. Only ``DefaultFlowCallback`` stays before ours: it
decides at the end of a step whether a checkpoint is saved, and reads no logs.

TensorBoard's callback would write our figures with a prefix (``train/power/gpu_w``). Therefore a
``LogFilter`` hides our figures from that callback, and ``TrainerTensorBoardOutput`` writes them
without a prefix, through the writer of that callback.

While a row with our figures is logged, each callback for TensorBoard or the console is between two
filters. An example of the list, with those of our figures that the dictionary contains after each
callback::

    DefaultFlowCallback
    our callback             all
    filter                   none
    TensorBoard's callback   none
    filter                   all
    W&B's callback           all
    filter                   a few
    console callback         a few
    filter                   all
    LastCallback             all
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, ProgressCallback
from transformers.integrations.integration_utils import TensorBoardCallback, rewrite_logs

from energy_callbacks.accounting.metrics.scalars import Scalars
from energy_callbacks.outputs import open_runs
from energy_callbacks.outputs.fault_tolerant import FaultTolerantOutput
from energy_callbacks.outputs.protocol import Board, RunLog
from energy_callbacks.outputs.summary_writer import WriterBoard
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from energy_callbacks_huggingface.log_filter import (
    LastCallback,
    LogFilter,
    LogRow,
    console,
    has_flow,
    needed,
    nothing,
    takes_time,
)
from energy_callbacks_huggingface.tensorboard_output import TrainerTensorBoardOutput

_CONSOLE = (PrinterCallback, ProgressCallback)
_ADDED = (LogFilter, LastCallback)


class OtherTrainerCallbacks:
    """The trainer's other callbacks during one call of ``train``, ``evaluate`` or ``predict``.

    Args:
        ours: our callback.
        callbacks: the trainer's list of callbacks; methods of this class change the list. Empty if
            the list was not found, or if another energy callback of the trainer writes the rows.
        folder: folder of our own event file, which is written if there is no TensorBoard callback;
            with ``None``, this object writes no rows.
        now_s: returns the monotonic time, s.
    """

    def __init__(
        self,
        ours: object,
        callbacks: list[Any],
        folder: Path | None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ours = ours
        self._callbacks = callbacks
        self._row = LogRow()
        self._last = LastCallback(ours)
        self._unfiltered: list[Any] = []
        self._filtered: list[Any] = []
        self._is_filtered = False
        self._users = [one for one in callbacks if isinstance(one, TensorBoardCallback)]
        self._boards = [
            FaultTolerantOutput(TrainerTensorBoardOutput(board), "TensorBoard", now_s)
            for board in self._users
        ]
        self._writes = folder is not None
        self._file = TensorBoardOutput(folder) if folder is not None and not self._users else None
        self._own = FaultTolerantOutput(self._file, "our event file", now_s) if self._file else None

    def runs(self) -> Iterator[Board]:
        """Yield the ``Board`` of each open TensorBoard callback, or of our own event file."""
        yield from (WriterBoard(one.tb_writer) for one in self._users if one.tb_writer)
        yield from () if self._file is None else (self._file,)

    def run_logs(self) -> Iterator[RunLog]:
        """Return the open runs of experiment trackers to which these callbacks write."""
        return open_runs.of_callbacks(self._callbacks)

    @property
    def _is_in_place(self) -> bool:
        """Whether our callback is in its place. If not, other callbacks are not added."""
        return self._ours in self._callbacks[: 1 + has_flow(self._callbacks)]

    def take_place(self) -> None:
        """Move our callback to its place near the front of the list.

        This works even while the trainer loops over the list to pass on an event. Callbacks after
        ours keep their positions in the list, so each of them receives the event once.
        """
        others = [one for one in self._callbacks if one is not self._ours]
        if len(others) < len(self._callbacks) and not self._is_in_place:
            others.insert(has_flow(others), self._ours)
            self._callbacks[:] = others

    def takes_time(self) -> bool:
        """Return whether callbacks of the user have a hook at the end of each step."""
        others = [one for one in self._callbacks if one is not self._ours]
        return self._is_in_place and any(map(takes_time, others))

    def call_last(self) -> None:
        """Add ``LastCallback``, which is called when all others have received the current event.

        ``remove_added`` removes it in the same event. It is not in the list at other events,
        because the call of an empty hook takes a microsecond, and there are four at each step.
        """
        if self._callbacks and self._callbacks[-1] is not self._last:
            self._callbacks.append(self._last)

    def _add_filters(self) -> None:
        """Add filters around TensorBoard's and the console callbacks, for the current event.

        The filters hide all our figures from TensorBoard's callback, and most of our figures from
        console callbacks. All changes of the list are after our callback, so each callback receives
        the current event once.
        """
        if not self._is_in_place:
            return
        callbacks = self._without_added()
        if callbacks != self._unfiltered:
            self._unfiltered = callbacks
            filtered = [part for one in callbacks for part in self._with_filters(one)]
            self._filtered = needed(filtered)
        self._callbacks[:] = self._filtered
        self._is_filtered = True

    def _with_filters(self, one: Any) -> list[Any]:
        """Return a callback, with the filters before and after it if it needs them."""
        if not isinstance(one, (TensorBoardCallback, *_CONSOLE)):
            return [one]
        select = nothing if isinstance(one, TensorBoardCallback) else console
        return [LogFilter(self._row, select), one, LogFilter(self._row, dict)]

    def remove_added(self) -> None:
        """Remove filters and ``LastCallback``, unless another callback was added after them.

        The trainer still loops over the list, and would not call that other callback.
        """
        if self._callbacks and self._callbacks[-1] is self._last:
            self._callbacks.pop()
            if self._is_filtered:
                self._is_filtered = False
                self._callbacks[:] = self._without_added()

    def _without_added(self) -> list[Any]:
        return [one for one in self._callbacks if type(one) not in _ADDED]

    def write(self, logs: dict[str, Any], scalars: Scalars, in_logs: Scalars, state: Any) -> None:
        """Write ``scalars`` to TensorBoard; add ``in_logs`` to ``logs`` and to the log history.

        Our own event file, if there is one, also receives the numbers in ``logs``.

        Args:
            logs: the row that the Trainer passes to callbacks; ``in_logs`` is added to it.
            scalars: our figures for TensorBoard, by tag.
            in_logs: our figures for the row and for ``state.log_history``, by tag.
            state: ``TrainerState`` of the trainer.
        """
        if not self._writes:
            return
        if self._own is not None:
            row = {k: v for k, v in rewrite_logs(logs).items() if isinstance(v, int | float)}
            self._own.write(row | scalars, state.global_step, time.time())
        for board in self._boards if scalars else ():
            board.write(scalars, state.global_step, time.time())
        if in_logs:
            if state.log_history:
                state.log_history[-1].update(in_logs)
            self._row.put(logs, in_logs)
            self._add_filters()

    def leave(self) -> None:
        """Remove what was added to the list, and close our own file."""
        if self._is_in_place:
            self._callbacks[:] = self._without_added()
        if self._own is not None:
            self._own.close()
