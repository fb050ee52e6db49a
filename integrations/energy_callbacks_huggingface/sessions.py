"""Sessions of measuring: which callback measures, and what a checkpoint holds."""

from typing import Any, ClassVar

import transformers
from transformers import TrainerCallback

from energy_callbacks.core.active_call import ActiveCall, find_callback_list
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_huggingface import loop
from energy_callbacks_huggingface.batches import Counter, InputCounter
from energy_callbacks_huggingface.callback_list import OtherCallbacks
from energy_callbacks_huggingface.session import Session

# Not a class name: HF would look for a callback of that name when it resumes.
STATE_KEY = "energy_callbacks"


class EnergySessions(TrainerCallback):
    """Begins and ends the sessions of a meter; ``EnergyHooks`` reports what happens in them.

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
        self._state_key = STATE_KEY
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

    def _elders(self, callbacks: list[Any]) -> list["EnergySessions"]:
        """Those of us that go before this one: as they stand, that of ``report_to`` last."""
        ours = [one for one in callbacks if isinstance(one, EnergySessions)]
        ours.sort(key=lambda one: one.is_from_report_to)
        return ours[: ours.index(self)] if self in ours else []

    def _stands_back(self, elders: list["EnergySessions"]) -> bool:
        """Whether this one measures nothing, because another does all that it would do."""
        folders = [one._meter.config.run_folder for one in elders]  # noqa: SLF001 - of our class
        if not elders or not (self.is_from_report_to or self._meter.config.run_folder in folders):
            return False
        self._warn_once(
            "two GpuEnergyCallback in one Trainer would measure the same twice; the second one "
            "measures nothing: leave it out, or 'energy' in report_to, or give it a report_dir"
        )
        return True

    def _begin(
        self, phase: str, call: ActiveCall | None, args: Any, state: Any, model: Any
    ) -> Session | None:
        """Start the meter for a call; ``None`` if nothing is to be measured."""
        self._forget_last()
        callbacks = find_callback_list(self) or []
        elders = self._elders(callbacks)
        if self._stands_back(elders):
            return None
        self._state_key = f"{STATE_KEY} {self._meter.config.run_folder}" if elders else STATE_KEY
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
        beside = OtherCallbacks(
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

    def _keep(self, state: Any) -> None:
        """Into the next checkpoint: the Trainer writes it before it calls ``on_save``."""
        state.stateful_callbacks[self._state_key] = self._meter.state()

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

    def _begin_alone(self, args: Any, state: Any, model: Any) -> Session | None:
        """An evaluation or a prediction by itself, unless training goes on unmeasured."""
        if ActiveCall.find("train", package="transformers") is not None:
            return None
        prediction = ActiveCall.find("predict", package="transformers")
        call = prediction or ActiveCall.find("evaluate", package="transformers")
        return self._begin("predict" if prediction else "validation", call, args, state, model)

    def _end(self, session: Session, state: Any) -> None:
        self._session = None
        session.stop()
        session.close()
        summary = self._save_report(state) if session.summary is None else session.summary
        if summary:
            loop.say(summary)

    def _save_report(self, state: Any) -> str | None:
        return self._meter.save_report() if state.is_world_process_zero else None
