"""Writes the figures of one ``fit`` to TensorBoard or our own event file, and to ``logs``.

A row contains the figures that are written at one step.
"""

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from energy_callbacks.dashboard import Dashboard, Facts
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.outputs import open_runs, summaries
from energy_callbacks.outputs.fault_tolerant import FaultTolerantOutput
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from energy_callbacks.report_process.pages import Pages
from energy_callbacks_keras.callback_list import Logs, OtherKerasCallbacks
from energy_callbacks_keras.counts import Data, asked


class Rows:
    """Writes rows of one ``fit`` to TensorBoard, and adds figures to the ``logs`` of its epochs.

    Args:
        others: the other callbacks of the call.
        folder: run folder, for our own event file if the user has no TensorBoard callback.
        tags: keys that are added to ``logs``, with NaN while a figure is unknown. Empty if several
            processes train: they measure different energies, so callbacks that monitor a figure
            would decide differently.
        batches_per_row: number of ``executions`` per row; ``None`` writes one row per epoch.
        meter: the meter that measures the call.
        data: batch size and number of batches of the call.

    Attributes:
        batches_per_row: as above.
        epoch: number of the current epoch.
        executions: number of calls of ``model.train_function`` since ``fit`` started.
    """

    def __init__(
        self,
        others: OtherKerasCallbacks,
        folder: Path,
        tags: tuple[str, ...],
        batches_per_row: int | None,
        *,
        meter: EnergyMeter,
        data: Data,
    ) -> None:
        board = others.tensorboard
        self._is_our_file = board is None
        run = TensorBoardOutput(folder) if board is None else KerasTensorBoardOutput(board)
        self._output = FaultTolerantOutput(run, "TensorBoard", meter.now_s)
        self._dashboard = Dashboard(
            meter,
            lambda: [run],
            lambda: _facts(data),
            lambda: open_runs.of_callbacks(others.all),
        )
        self._tags = tags
        self.batches_per_row = batches_per_row
        self.executions = self.epoch = 0
        self._written: int | None = None
        self._losses: dict[str, float] = {}

    @property
    def step(self) -> int:
        """The step of a row: ``epoch`` or ``executions``, as in Keras' TensorBoard callback."""
        return self.epoch if self.batches_per_row is None else self.executions

    @property
    def is_due(self) -> bool:
        """Whether a row must be written now, within an epoch."""
        every = self.batches_per_row
        return every is not None and self.step % every == 0 and self.step not in (0, self._written)

    def write(self, scalars: Mapping[str, float]) -> None:
        """Write a row at the current step."""
        self._written = self.step
        if scalars:
            self._output.write(scalars, self.step, time.time())
            self._dashboard.row(scalars, self.step)

    def write_loss(self, logs: Logs | None) -> None:
        """Keep Keras' metrics of an epoch, and write them if no TensorBoard callback does so."""
        self._losses = {k: v for k, v in (logs or {}).items() if isinstance(v, float)}
        losses = {f"epoch_{k}": v for k, v in self._losses.items()}
        if self._is_our_file and losses:
            self._output.write(losses, self.epoch, time.time())

    def offer(self, logs: Logs | None, scalars: Mapping[str, float]) -> None:
        """Add figures to the ``logs`` of an epoch, for all following callbacks."""
        if logs is not None and self._tags:
            logs.update(dict.fromkeys(self._tags, math.nan) | dict(scalars))

    def pages(self) -> Pages | None:
        """End the training in trackers; return what is written to TensorBoard with the report."""
        return self._dashboard.pages(lambda: self._losses, self.step)

    def close(self) -> None:
        """Close our own file; the user's writer stays open."""
        self._output.close()


class KerasTensorBoardOutput:
    """Writes scalars with the writer of the user's TensorBoard callback; tags are unchanged.

    Args:
        tensorboard: the TensorBoard callback, which opens and closes the writer.
    """

    prefix = ""

    def __init__(self, tensorboard: Any) -> None:
        self._tensorboard = tensorboard

    @property
    def folder(self) -> str:
        """The directory of the TensorBoard run that contains the training loss."""
        return os.path.join(self._tensorboard.log_dir, "train")  # noqa: PTH118 - may be a URL

    @property
    def _writer(self) -> Any:
        # A second writer would create a second event file. TensorBoard, while it is open, reads new
        # values only from the newest file of a folder.
        return self._tensorboard._train_writer  # noqa: SLF001

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """Write all scalars of a step as tensors, as Keras does.

        They are one summary: TensorFlow takes 5 ms to write 25 scalars one by one.
        """
        self.add(summaries.tensors(scalars), step)

    def add(self, summary: Any, step: int) -> None:
        """Write a ``Summary`` protocol buffer at a step."""
        tf_summary = self._tensorboard.summary
        # With update_freq=n, TensorBoard's callback drops all summaries except at every n-th step.
        with tf_summary.record_if(True), self._writer.as_default():
            tf_summary.experimental.write_raw_pb(summary.SerializeToString(), step=step)

    def flush(self) -> None:
        """Write buffered events to disk."""
        self._writer.flush()

    def close(self) -> None:
        """Do nothing: the writer belongs to the user."""


def _facts(data: Data) -> Facts:
    """Return hyperparameters by name. TensorBoard shows them to compare trainings."""
    size = data.batch_size
    return {
        "framework": f"keras ({keras.backend.backend()})",
        "world_size": data.processes,
        "batch_size": size if size is not None and size == int(size) else None,
        "accumulation": data.accumulation,
        "precision": asked(lambda: str(data.model.dtype_policy.name)),
    }
