"""Begins and ends measuring for a call of ``fit``, ``evaluate`` or ``predict``."""

from pathlib import Path
from typing import Any

import keras

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.launch import TrainingProcess, default_folder
from energy_callbacks.accounting.metrics.tags import expected_tags
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.core.guard import harmless, logger
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_keras import checkpoints, devices
from energy_callbacks_keras.callback_list import OtherKerasCallbacks
from energy_callbacks_keras.counts import Data
from energy_callbacks_keras.loop import KerasStepCounter
from energy_callbacks_keras.rows import Rows
from energy_callbacks_keras.waits import Waits


class EnergyCalls(keras.callbacks.Callback):
    """Starts and stops a meter for each call of Keras; its subclass in ``hooks.py`` has the hooks.

    Args:
        meter: the meter of this callback.
        steps: counts optimizer steps and samples.
        batches_per_row: number of calls of Keras' ``train_function`` (``steps_per_execution``
            batches each) per row of figures in TensorBoard; ``None`` writes one row per epoch.
    """

    def __init__(
        self, meter: EnergyMeter, steps: KerasStepCounter, batches_per_row: int | None
    ) -> None:
        super().__init__()
        self._meter = meter
        self._steps = steps
        self._waits = Waits(meter)
        self._batches_per_row = batches_per_row
        self._forget_call()

    def _forget_call(self) -> None:
        self._owner: str | None = None
        self._call: ActiveCall | None = None
        self._others: OtherKerasCallbacks | None = None
        self._process = TrainingProcess()
        self._rows: Rows | None = None
        self._checks_budget = False
        self._first_epoch = 0
        self._steps.begin(Data())
        self._waits.end()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without the objects of a running call."""
        idle = {"_owner": None, "_call": None, "_others": None, "_rows": None, "_model": None}
        return self.__dict__ | idle

    def _abandon(self, message: str) -> None:
        """Stop measuring, and log the message with the current exception."""
        self._meter._abandon(message)

    @harmless
    def set_model(self, /, model: Any) -> None:
        """Store the model, and put this callback before those of other classes in Keras' list.

        Keras calls this hook when it creates its list of callbacks.
        """
        super().set_model(model)
        OtherKerasCallbacks(self).lead()

    def _begin(self, owner: str) -> None:
        """Begin a call.

        Args:
            owner: name of the function that is called: ``fit``, ``evaluate`` or ``predict``.
        """
        self._forget_call()
        self._owner = owner
        self._call = ActiveCall.find(owner, package="keras")
        self._others = OtherKerasCallbacks(self)
        self._others.lead()

    @property
    def _is_inside(self) -> bool:
        """Whether a measured call is still running; Keras calls no hook after an exception."""
        return self._owner is not None and (self._call is None or self._call.is_under_way())

    def _start(self, state: dict[str, Any] | None = None) -> tuple[int | str, ...] | None:
        """Start the meter.

        Args:
            state: state of the run that is resumed; ``None`` or empty if there is none.

        Returns:
            Ordinals of the GPUs in use; empty on a CPU, ``None`` if unknown.
        """
        self._process = devices.process(self.model)
        if self._meter.config.has_budget:
            devices.check_budget(self._process)
            self._checks_budget = self._process.world_size == 1
        used_gpus = devices.used_gpus(self.model)
        self._meter._start(
            self._run_folder(),
            state=state,
            process=self._process,
            used_gpus=used_gpus,
            call=self._call,
            say=self._say,
        )
        return used_gpus

    def _run_folder(self) -> Path:
        """Return the configured run folder; if there is none, the first possible one of this list.

        1. ``energy`` in the ``log_dir`` of the TensorBoard callback, unless that is in the cloud
        2. the run folder of the meter's last start
        3. a new default folder
        """
        board = self._others.tensorboard if self._others else None
        log_dir = "" if board is None or "://" in board.log_dir else board.log_dir
        beside = Path(log_dir) / "energy" if log_dir else self._meter.run_folder
        own = self._meter.config.run_folder
        return own or beside or default_folder(self._process) / "energy"

    def _state(self, epoch: int) -> dict[str, Any]:
        """Return the state of the run that ``fit`` continues, from the Keras backup.

        Without a backup, return the id of the newest run in the run folder; if ``epoch`` is 0, {}.
        """
        state = checkpoints.kept(self._others.all) if self._others else {}
        if epoch and not state:
            return {"run_id": journal.newest_run_id(self._run_folder())}
        return state

    @harmless
    def _start_training(
        self, used_gpus: tuple[int | str, ...] | None, *, is_resuming: bool
    ) -> None:
        folder = self._meter.run_folder
        if not self._meter.is_running or folder is None or self._others is None:
            return
        counts_tokens = self._steps.tokens_per_sample is not None
        tags = expected_tags(gpu=bool(used_gpus), tokens=counts_tokens, waits=self._waits.is_used)
        is_alone = self._process.world_size == 1
        data = Data(
            model=self.model,
            call=self._call,
            steps=(self.params or {}).get("steps"),
            processes=self._process.world_size,
        )
        prefix = self._meter.config.tag_prefix
        logged = tuple(prefix + tag for tag in tags) if is_alone else ()
        every = self._batches_per_row
        self._rows = Rows(self._others, folder, logged, every, meter=self._meter, data=data)
        self._meter.enter("train")
        done_before = self._steps.begin(data)
        if is_resuming and done_before:
            self._meter.resumed(done_before)
        if self._process.rank == 0:
            checkpoints.keep(self._others.all, self._meter.state())

    def _log(self) -> dict[str, float]:
        """Return the newest scalars. The first process also writes them to TensorBoard."""
        if self._rows is None:
            return {}
        scalars = self._meter.log(self._rows.step)
        if self._process.rank == 0:
            self._rows.write(scalars)
        return scalars

    @harmless
    def _finish(self, owner: str) -> None:
        """End the call: write the last scalars, and let the report be made."""
        if self._owner != owner:
            return
        if self._meter.is_running:
            with self._meter._end_call() as ending:
                self._log()
                if self._rows is not None and self._process.rank == 0:
                    ending.pages = self._rows.pages()
        if self._rows is not None:
            self._rows.close()
        self._forget_call()

    def _say(self, summary: str) -> None:
        """Print a summary if Keras prints its progress; otherwise log it."""
        is_verbose = (self.params or {}).get("verbose", 1)
        if is_verbose and keras.config.is_interactive_logging_enabled():
            print(summary)  # noqa: T201 - Keras prints as well
        else:
            logger.info("%s", summary)

    def _finish_last(self, owner: str) -> None:
        """End the call after Keras has called the current hook of all other callbacks."""
        if self._others is not None and self._others.all:
            self._others.call_last(lambda: self._finish(owner))
        else:
            self._finish(owner)
