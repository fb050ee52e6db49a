"""A call of ``fit``, ``evaluate`` or ``predict``: how it begins and ends, where its files go."""

import logging
from pathlib import Path
from typing import Any

import keras

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.launch import TrainingProcess, default_folder
from energy_callbacks.accounting.metrics.scalars import expected_tags
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.core.guard import harmless
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_keras import checkpoints, devices
from energy_callbacks_keras.callback_list import OtherCallbacks
from energy_callbacks_keras.counts import Data
from energy_callbacks_keras.loop import StepCounter
from energy_callbacks_keras.rows import Rows
from energy_callbacks_keras.waits import Waits

logger = logging.getLogger("energy_callbacks")


class EnergyCalls(keras.callbacks.Callback):
    """Begins and ends the calls that a meter measures; ``EnergyHooks`` reports events inside them.

    Args:
        meter: measures.
        steps: counts.
        batches_to_a_row: ``None`` for a row an epoch.
    """

    def __init__(
        self, meter: EnergyMeter, steps: StepCounter, batches_to_a_row: int | None
    ) -> None:
        super().__init__()
        self._meter = meter
        self._steps = steps
        self._waits = Waits(meter)
        self._batches_to_a_row = batches_to_a_row
        self._forget_call()

    def _forget_call(self) -> None:
        self._owner: str | None = None
        self._call: ActiveCall | None = None
        self._siblings: OtherCallbacks | None = None
        self._process = TrainingProcess()
        self._rows: Rows | None = None
        self._first_epoch = 0
        self._steps.begin(Data())
        self._waits.end()

    def __getstate__(self) -> dict[str, Any]:
        """A copy is in no call."""
        idle = {"_owner": None, "_call": None, "_siblings": None, "_rows": None, "_model": None}
        return self.__dict__ | idle

    def abandon(self, message: str) -> None:
        """Measure no more and say why, with the exception that is being handled."""
        self._meter.abandon(message)

    def set_model(self, model: Any) -> None:
        """Keras makes its list of the callbacks of a call."""
        super().set_model(model)
        OtherCallbacks(self).lead()

    def _begin(self, owner: str) -> None:
        """A call begins that the meter belongs to: ``fit``, ``evaluate`` or ``predict``."""
        self._forget_call()
        self._owner = owner
        self._call = ActiveCall.find(owner, package="keras")
        self._siblings = OtherCallbacks(self)
        self._siblings.lead()

    @property
    def _is_inside(self) -> bool:
        """Whether such a call is under way; one that raised has run no hook."""
        return self._owner is not None and (self._call is None or self._call.is_under_way())

    def _start(self, state: dict[str, Any] | None = None) -> tuple[int, ...] | None:
        """Start the meter, perhaps with its state from a backup; returns the GPUs in use."""
        self._process = devices.process(self.model)
        if self._meter.config.has_budget:
            devices.check_budget(self._process)
        used_gpus = devices.used_gpus(self.model)
        self._meter.start(
            self._run_folder(),
            state=state,
            process=self._process,
            used_gpus=used_gpus,
            call=self._call,
            say=self._say,
        )
        return used_gpus

    def _run_folder(self) -> Path:
        """Beside the user's logs, unless they lie in a bucket; else where this run was before."""
        board = self._siblings.tensorboard if self._siblings else None
        log_dir = "" if board is None or "://" in board.log_dir else board.log_dir
        beside = Path(log_dir) / "energy" if log_dir else self._meter.run_folder
        otherwise = beside or default_folder(self._process) / "energy"
        return self._meter.config.run_folder or otherwise

    def _state(self, epoch: int) -> dict[str, Any]:
        """Of the run that goes on: beside its backup, else the newest one in the run folder."""
        state = checkpoints.kept(self._siblings.all) if self._siblings else {}
        if epoch and not state:
            return {"run_id": journal.newest_run_id(self._run_folder())}
        return state

    @harmless
    def _start_training(self, used_gpus: tuple[int, ...] | None, *, is_resuming: bool) -> None:
        folder = self._meter.run_folder
        if not self._meter.is_running or folder is None or self._siblings is None:
            return
        tags = expected_tags(
            gpu=bool(used_gpus),
            tokens=self._steps.tokens_per_sample is not None,
            waits=self._waits.is_asked,
        )
        is_alone = self._process.world_size == 1
        data = Data(
            model=self.model,
            call=self._call,
            steps=(self.params or {}).get("steps"),
            processes=self._process.world_size,
        )
        logged = tags if is_alone else ()
        every = self._batches_to_a_row
        self._rows = Rows(self._siblings, folder, logged, every, meter=self._meter, data=data)
        self._meter.enter("train")
        done_before = self._steps.begin(data)
        if is_resuming and done_before:
            self._meter.resumed(done_before)

    def _log(self) -> dict[str, float]:
        """Scalars of the newest span into TensorBoard, by the first process."""
        if self._rows is None:
            return {}
        scalars = self._meter.log(self._rows.step)
        if self._process.rank == 0:
            self._rows.write(scalars)
        return scalars

    @harmless
    def _finish(self, owner: str) -> None:
        """The call ends: last scalars, report, one line."""
        if self._owner != owner:
            return
        if self._meter.is_running:
            self._meter.stop()
            self._log()
            self._save_report()
        if self._rows is not None:
            self._rows.close()
        self._forget_call()

    def _save_report(self) -> None:
        summary = self._meter.save_report() if self._process.rank == 0 else None
        if summary:
            self._say(summary)
            if self._rows is not None:
                self._rows.end()

    def _say(self, summary: str) -> None:
        """Prints like Keras' own progress, and nothing with ``verbose=0``."""
        is_shown = keras.config.is_interactive_logging_enabled()
        if is_shown and (self.params or {}).get("verbose", 1):
            print(summary)  # noqa: T201 - see above
        else:
            logger.info("%s", summary)

    def _finish_behind_all(self, owner: str) -> None:
        """Let the progress bar and all others have their last word before ours."""
        if self._owner == owner and self._siblings is not None and self._siblings.all:
            self._siblings.add_rear(lambda: self._finish(owner))
        else:
            self._finish(owner)
