"""The Trainer's events as events of the meter.

::

    on_init_end                       first place in the list of callbacks
    on_train_begin                    meter.start, phase train
                                        (again in the same call: auto_find_batch_size; tuning)
      on_epoch_begin                    batch_done: what follows is waiting
      on_step_begin                     data_ready
      on_substep_end                    one micro-batch more
      on_step_end                       step
      on_log                            figures into the row of the loss
      on_prediction_step                (first) validation has begun after the event before
      on_evaluate | on_predict          window validation | predict
      on_save                           window checkpoint, since the event before
    on_log with train_loss            phase train ends, meter.stop, last figures
    on_train_end                      report

``evaluate`` and ``predict`` by themselves start at the first ``on_prediction_step``. After an
exception no hook is called: the meter watches the call itself. No hook synchronises the device
or reads a sensor.
"""

import math
from typing import Any, ClassVar

import transformers
from transformers import TrainerCallback

from energy_callbacks.accounting.vote import Vote
from energy_callbacks.calls import OngoingCall, list_holding
from energy_callbacks.guard import harmless
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_huggingface import loop
from energy_callbacks_huggingface.batches import Counter, InputCounter
from energy_callbacks_huggingface.session import Session
from energy_callbacks_huggingface.siblings import Siblings

# Not a class name: HF would look for a callback of that name when it resumes.
_STATE_KEY = "energy_callbacks"


class EnergyHooks(TrainerCallback):
    """Drives a meter; its settings belong to ``GpuEnergyCallback``.

    Args:
        meter: measures.
        batch_size_fn: samples in the model's inputs; ``None`` takes them from the loader.
        length_fn: tokens in them; ``None`` takes the Trainer's own count.
    """

    is_from_report_to: ClassVar[bool] = False

    def __init__(
        self, meter: EnergyMeter, batch_size_fn: Counter | None, length_fn: Counter | None
    ) -> None:
        self._meter = meter
        self._inputs = InputCounter(batch_size_fn, length_fn)
        self._state_key = _STATE_KEY
        self._vote = Vote()
        self._session: Session | None = None
        self._warned: set[str] = set()

    def abandon(self, message: str) -> None:
        """Measure no more; the training goes on."""
        session, self._session = self._session, None
        self._meter.abandon(message)
        if session is not None:
            session.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_session": None}

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            loop.warn(message)

    def _elders(self, callbacks: list[Any]) -> list["EnergyHooks"]:
        """Those of us that go before this one: as they stand, that of ``report_to`` last."""
        ours = [one for one in callbacks if isinstance(one, EnergyHooks)]
        ours.sort(key=lambda one: one.is_from_report_to)
        return ours[: ours.index(self)] if self in ours else []

    def _stands_back(self, elders: list["EnergyHooks"]) -> bool:
        """Whether this one measures nothing, because another does all that it would do."""
        folders = [one._meter.config.run_folder for one in elders]  # noqa: SLF001 - of our class
        if not elders or not (self.is_from_report_to or self._meter.config.run_folder in folders):
            return False
        self._warn_once(
            "two GpuEnergyCallback in one Trainer would measure the same twice; the second one "
            "measures nothing: leave it out, or 'energy' in report_to, or give it a report_dir"
        )
        return True

    @harmless
    def on_init_end(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The trainer is made."""
        callbacks = list_holding(self) or []
        if not self._elders(callbacks):
            Siblings(self, callbacks, None).take_first_place()

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """Training begins; or begins anew with smaller batches, in the same call."""
        session = self._training()
        if session is not None and not session.is_orphan:
            session.tuned()
        else:
            call = OngoingCall.find("train", package="transformers")
            session = self._begin("train", call, args, state, model)
        if session is not None:
            self._begin_training(session, args, state, model)

    @harmless
    def _begin_training(self, session: Session, args: Any, state: Any, model: Any) -> None:
        self._vote = Vote(args.world_size)
        session.siblings.take_first_place()
        session.begin_training(args, state, model)
        self._meter.plan(state.max_steps - state.global_step)
        self._keep(state)

    def _keep(self, state: Any) -> None:
        """Into the next checkpoint: the Trainer writes it before it calls ``on_save``."""
        state.stateful_callbacks[self._state_key] = self._meter.state()

    def _begin(
        self, phase: str, call: OngoingCall | None, args: Any, state: Any, model: Any
    ) -> Session | None:
        """Start the meter for a call; ``None`` where nothing is to be measured."""
        self._forget_last()
        callbacks = list_holding(self) or []
        elders = self._elders(callbacks)
        if self._stands_back(elders):
            return None
        self._state_key = f"{_STATE_KEY} {self._meter.config.run_folder}" if elders else _STATE_KEY
        self._meter.start(
            loop.run_folder(args),
            state=state.stateful_callbacks.get(self._state_key),
            process=loop.process(args, transformers.__version__),
            used_gpus=loop.used_gpus(args, model),
            call=call,
            say=loop.say,
        )
        if not self._meter.is_running or self._meter.run_folder is None:
            return None
        beside = Siblings(
            self, [] if elders else callbacks, None if elders else self._meter.run_folder
        )
        if beside.has_codecarbon:
            self._warn_once(
                "CodeCarbonCallback measures this training too, with sensors and threads of its "
                "own; name the reports you want, such as report_to=['tensorboard'], not 'all'"
            )
        self._session = Session(self._meter, call, phase, beside, self._inputs)
        if phase == "train" and state.global_step:
            self._meter.resumed(state.global_step)
        return self._session

    def _forget_last(self) -> None:
        """Clean up after a call that no hook has ended; the meter ends what it measured."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
            if session.is_orphan:
                session.stop()

    def _living(self) -> Session | None:
        session = self._session
        return session if session is not None and session.is_under_way() else None

    def _training(self) -> Session | None:
        session = self._living()
        return session if session is not None and session.phase == "train" else None

    @harmless
    def wait_for_data(self) -> None:
        """All callbacks have been told of an event: from here on the loop waits for data."""
        if (session := self._session) is not None:
            self._meter.mark("batch_done")
            session.see()

    @harmless
    def on_epoch_begin(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The loader's iterator is made next: from here on the loop waits for its first batch."""
        if (session := self._session) is not None:
            session.siblings.hang_curtains()
            self.wait_for_data()

    @harmless
    def on_step_begin(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The data of all micro-batches is there; it is moved to the device inside the step."""
        if (session := self._session) is not None:
            session.begin_step()

    @harmless
    def on_substep_end(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A micro-batch that was not the last of its step."""
        if (session := self._session) is not None:
            session.end_micro_batch()

    def on_step_end(
        self, /, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any
    ) -> None:
        """An optimizer step."""
        self._end_step(args, state, train_dataloader)
        if self._meter.is_over_budget(self._vote):
            control.should_training_stop = True

    @harmless
    def _end_step(self, args: Any, state: Any, loader: Any) -> None:
        if (session := self._session) is not None:
            session.end_step(args, state, loader)
            self._keep(state)

    @harmless
    def on_epoch_end(
        self, /, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any
    ) -> None:
        """An epoch, perhaps cut short."""
        if (session := self._session) is not None:
            self._meter.epoch(max(math.ceil(state.epoch or 0.0) - 1, 0))
            session.end_epoch(args, state, train_dataloader)

    @harmless
    def on_log(
        self,
        /,
        args: Any,
        state: Any,
        control: Any,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A row: with figures of ours if it is one of training. Never logs, never asks to log."""
        session = self._session
        if session is None or logs is None:
            return
        if loop.is_final_row(logs):
            session.stop()  # TensorBoard closes its writer before our on_train_end
            # Now: reading the best checkpoint, which comes next, may fail.
            session.summary = self._save_report(state) or ""
        scalars = self._meter.log(state.global_step) if loop.is_training_row(logs) else {}
        if state.is_world_process_zero:
            # The last row stands beside means of the whole training, and is what ``train`` returns.
            in_logs = self._meter.totals() if loop.is_final_row(logs) else scalars
            session.write(logs, scalars, in_logs, state)
        session.see()

    def on_prediction_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """A batch of an evaluation or a prediction; nothing says that one begins."""
        session = self._living() or self._begin_alone(args, state, model)
        if session is not None:
            session.predict()

    def _begin_alone(self, args: Any, state: Any, model: Any) -> Session | None:
        """An evaluation or a prediction by itself, unless training goes on unmeasured."""
        if OngoingCall.find("train", package="transformers") is not None:
            return None
        prediction = OngoingCall.find("predict", package="transformers")
        call = prediction or OngoingCall.find("evaluate", package="transformers")
        return self._begin("predict" if prediction else "validation", call, args, state, model)

    @harmless
    def on_evaluate(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An evaluation is over."""
        self._predicted("validation", state)

    @harmless
    def on_predict(
        self, /, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any
    ) -> None:
        """A prediction is over."""
        self._predicted("predict", state)

    def _predicted(self, name: str, state: Any) -> None:
        session = self._living()
        if session is not None and session.phase == "train":
            session.predicted(name)
            self._keep(state)
        elif session is not None:
            self._end(session, state)

    @harmless
    def on_save(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A checkpoint has been written."""
        if (session := self._session) is not None:
            session.saved()

    @harmless
    def on_train_end(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The last event of training; a trial that was pruned has had no last row."""
        if (session := self._session) is not None:
            self._end(session, state)

    def _end(self, session: Session, state: Any) -> None:
        self._session = None
        session.stop()
        session.close()
        summary = self._save_report(state) if session.summary is None else session.summary
        if summary:
            loop.say(summary)

    def _save_report(self, state: Any) -> str | None:
        return self._meter.save_report() if state.is_world_process_zero else None
