"""The other callbacks of the trainer: our place before them, their writers, what they see.

Reporting callbacks stand before the user's, and each is handed the same dictionary of logs. So
ours takes the first place and adds its figures there. TensorBoard would show them as
``train/power/gpu_w``: it gets them through its own writer, and a ``LogFilter`` hides them from it.

::

    ours   filter | TensorBoard | filter   W&B, user's   filter | console | filter   last
    all    nothing               all                       a few             all
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, ProgressCallback
from transformers.integrations.integration_utils import (
    CodeCarbonCallback,
    TensorBoardCallback,
    rewrite_logs,
)

from energy_callbacks.accounting.metrics.scalars import Scalars
from energy_callbacks.outputs.fault_tolerant import FaultTolerantOutput
from energy_callbacks.outputs.protocol import Board
from energy_callbacks.outputs.summary_writer import WriterBoard
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from energy_callbacks_huggingface.log_filter import LastCallback, LogFilter, LogRow
from energy_callbacks_huggingface.tensorboard import TensorBoardRunOutput

_READ_ALONG = (PrinterCallback, ProgressCallback)
_NO_FILE = "the event file of energy_callbacks cannot be written any more"
_NO_BOARD = "figures of energy no longer reach TensorBoard"


class OtherCallbacks:
    """The other callbacks during one call of ``train``, ``evaluate`` or ``predict``.

    Args:
        ours: our callback.
        callbacks: the trainer's own list; empty if it was not found.
        folder: where an event file of our own goes, if there is no TensorBoard; ``None`` where
            another of our callbacks writes the rows.
    """

    def __init__(self, ours: object, callbacks: list[Any], folder: Path | None) -> None:
        self._ours = ours
        self._callbacks = callbacks
        self._row = LogRow()
        self._users = [one for one in callbacks if isinstance(one, TensorBoardCallback)]
        self._boards = [
            FaultTolerantOutput(TensorBoardRunOutput(board), _NO_BOARD) for board in self._users
        ]
        self._writes = folder is not None
        self._file = TensorBoardOutput(folder) if folder is not None and not self._users else None
        self._own = FaultTolerantOutput(self._file, _NO_FILE) if self._file else None

    def runs(self) -> Iterator[Board]:
        """The runs of TensorBoard that rows go into, as far as they are open."""
        yield from (WriterBoard(one.tb_writer) for one in self._users if one.tb_writer)
        yield from () if self._file is None else (self._file,)

    @property
    def has_codecarbon(self) -> bool:
        """Whether a second tracker stands in the list."""
        return any(isinstance(one, CodeCarbonCallback) for one in self._callbacks)

    @property
    def _is_first(self) -> bool:
        """Whether ours stands in front: only then the list may change while it is gone through."""
        return bool(self._callbacks) and self._callbacks[0] is self._ours

    def take_first_place(self) -> None:
        """Move to the front; who comes after us stays where the iteration expects it."""
        others = [one for one in self._callbacks if one is not self._ours]
        if len(others) < len(self._callbacks):
            self._callbacks[:] = [self._ours, *others]

    def hang_curtains(self) -> None:
        """Hide our figures from those who need not see them in the logs."""
        if not self._is_first:
            return
        hung = []
        for one in self._bare():
            shown = self._shown_to(one)
            if shown is None:
                hung.append(one)
            else:
                hung += [
                    LogFilter(self._row, shown),
                    one,
                    LogFilter(self._row, self._row.everything),
                ]
        self._callbacks[:] = [*hung, LastCallback(self._ours)]

    def _shown_to(self, sibling: Any) -> Callable[[], Scalars] | None:
        """What another callback may see of our figures; ``None`` if it may see all."""
        if isinstance(sibling, TensorBoardCallback):
            return self._row.nothing
        return self._row.selection if isinstance(sibling, _READ_ALONG) else None

    def _bare(self) -> list[Any]:
        """The trainer's callbacks without what we have put between them."""
        return [one for one in self._callbacks if not isinstance(one, LogFilter | LastCallback)]

    def write(self, logs: dict[str, Any], scalars: Scalars, in_logs: Scalars, state: Any) -> None:
        """Hand a row around.

        Args:
            logs: the row.
            scalars: for TensorBoard, with exact tags.
            in_logs: for all others.
            state: of the trainer.
        """
        if not self._writes:
            return
        if self._own is not None:
            row = {k: v for k, v in rewrite_logs(logs).items() if isinstance(v, int | float)}
            self._own.write(row | scalars, state.global_step, time.time())
        for board in self._boards:
            board.write(scalars, state.global_step, time.time())
        if in_logs and state.log_history:
            state.log_history[-1].update(in_logs)
        self._row.put(logs, in_logs)

    def leave(self) -> None:
        """Remove the filters and close our own file."""
        if self._is_first:
            self._callbacks[:] = self._bare()
        own, self._own = self._own, None
        if own is not None:
            own.close()
