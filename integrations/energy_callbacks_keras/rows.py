"""Writes the figures of one ``fit``: to TensorBoard or our own event file, and to ``logs``."""

import math
import time
from collections.abc import Mapping
from pathlib import Path

from energy_callbacks.dashboard import Dashboard
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.outputs.fault_tolerant import FaultTolerantOutput
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from energy_callbacks_keras.callback_list import Logs, OtherCallbacks
from energy_callbacks_keras.counts import Data
from energy_callbacks_keras.tensorboard import TensorBoardRunOutput, facts

_NO_FILE = "no more energy in TensorBoard: writing failed"


class Rows:
    """TensorBoard's x-axis and its file; the same keys in ``logs`` at each epoch.

    Args:
        siblings: Keras' list of the call.
        folder: run folder, for a file of ours if the user has no TensorBoard callback.
        tags: keys in ``logs``, NaN while unknown; empty if several processes train, which see
            different figures and would decide differently on them.
        batches_to_a_row: ``None`` for a row an epoch.
        meter: measures.
        data: of the call.
    """

    def __init__(
        self,
        siblings: OtherCallbacks,
        folder: Path,
        tags: tuple[str, ...],
        batches_to_a_row: int | None,
        *,
        meter: EnergyMeter,
        data: Data,
    ) -> None:
        board = siblings.tensorboard
        self._is_our_file = board is None
        run = TensorBoardOutput(folder) if board is None else TensorBoardRunOutput(board)
        self._output = FaultTolerantOutput(run, _NO_FILE)
        self._dashboard = Dashboard(meter, lambda: [run], lambda: facts(data))
        self._tags = tags
        self._batches_to_a_row = batches_to_a_row
        self._executions = 0
        self._epoch = 0
        self._written: int | None = None
        self._losses: dict[str, float] = {}

    @property
    def step(self) -> int:
        """The epoch, or what TensorBoard's callback counts: executions that began."""
        return self._epoch if self._batches_to_a_row is None else self._executions

    @property
    def is_due(self) -> bool:
        """Whether the executions so far make a row that is not written yet."""
        every = self._batches_to_a_row
        return every is not None and self.step % every == 0 and self.step not in (0, self._written)

    def begin_execution(self) -> None:
        """One more."""
        self._executions += 1

    def begin_epoch(self, epoch: int) -> None:
        """The x-axis goes on."""
        self._epoch = epoch

    def write(self, scalars: Mapping[str, float]) -> None:
        """A row at the step of the loss."""
        self._written = self.step
        if scalars:
            self._output.write(scalars, self.step, time.time())
            self._dashboard.row(scalars, self.step)

    def write_loss(self, logs: Logs | None) -> None:
        """Keras' own rows of an epoch, if no other callback writes them."""
        self._losses = {k: v for k, v in (logs or {}).items() if isinstance(v, float)}
        losses = {f"epoch_{k}": v for k, v in self._losses.items()}
        if self._is_our_file and losses:
            self._output.write(losses, self._epoch, time.time())

    def offer(self, logs: Logs | None, scalars: Mapping[str, float]) -> None:
        """Into the ``logs`` of an epoch, for all callbacks behind us."""
        if logs is not None and self._tags:
            logs.update(dict.fromkeys(self._tags, math.nan) | dict(scalars))

    def end(self) -> None:
        """The report is saved."""
        self._dashboard.end(lambda: self._losses, self.step)

    def close(self) -> None:
        """The file of ours ends; the user's writer stays open."""
        self._output.close()
