"""Begins and ends sessions, decides which callback measures, and stores the meter's state.

A session measures one call of ``train``, ``evaluate`` or ``predict``.
"""

from typing import Any, ClassVar

import transformers
from transformers import TrainerCallback
from transformers.integrations.integration_utils import CodeCarbonCallback

from energy_callbacks.core.active_call import ActiveCall, find_callback_list
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_huggingface import loop
from energy_callbacks_huggingface.batches import Counter, InputCounter
from energy_callbacks_huggingface.callback_list import OtherTrainerCallbacks
from energy_callbacks_huggingface.session import Session

# Key of the meter's state in a checkpoint. The key must not be the name of a callback class: with
# ``restore_callback_states_from_checkpoint``, the Trainer replaces each callback whose class name
# is a key in the checkpoint.
STATE_KEY = "energy_callbacks"


class EnergySessions(TrainerCallback):
    """Begins and ends a ``Session`` per measured call; a subclass handles the other events.

    Args:
        meter: the meter of this callback.
        batch_size_fn: returns the number of samples in the model's inputs; ``None`` uses the batch
            size of the loader.
        tokens_fn: returns the number of tokens in the model's inputs; ``None`` uses the Trainer's
            count.
        log_every_n_steps: the user's setting for rows of figures; ``None`` for the default.

    Attributes:
        is_from_report_to: whether ``report_to=["energy"]`` has added the callback.
    """

    is_from_report_to: ClassVar[bool] = False

    def __init__(
        self,
        meter: EnergyMeter,
        batch_size_fn: Counter | None,
        tokens_fn: Counter | None,
        log_every_n_steps: int | None,
    ) -> None:
        self._meter = meter
        self._log_every_n_steps = log_every_n_steps
        self._inputs = InputCounter(batch_size_fn, tokens_fn)
        self._state_key = STATE_KEY
        self._session: Session | None = None
        self._warned: set[str] = set()

    def _abandon(self, message: str) -> None:
        """Stop measuring after an error, and log ``message``; the training continues."""
        session, self._session = self._session, None
        self._meter._abandon(message)
        if session is not None:
            session.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_session": None}

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            loop.warn(message)

    def _prior(self, callbacks: list[Any]) -> list["EnergySessions"]:
        """Return the energy callbacks that have precedence over this callback.

        Callbacks of the user have precedence over the callback from ``report_to``. Among the
        callbacks of the user, the first in the list has precedence.
        """
        ours = [one for one in callbacks if isinstance(one, EnergySessions)]
        ours.sort(key=lambda one: one.is_from_report_to)
        return ours[: ours.index(self)] if self in ours else []

    def _is_redundant(self, prior: list["EnergySessions"]) -> bool:
        """Return whether another callback makes this one unnecessary; if so, warn once.

        Two callbacks of the user both measure if their run folders differ.
        """
        folders = [one._meter.config.run_folder for one in prior]  # noqa: SLF001 - of our class
        if not prior or not (self.is_from_report_to or self._meter.config.run_folder in folders):
            return False
        self._warn_once(
            "two GpuEnergyCallback in one Trainer would measure the same training twice, so the "
            "second one measures nothing; remove it, or remove 'energy' from report_to, or give "
            "it a report_dir"
        )
        return True

    def _begin(
        self, phase: str, call: ActiveCall | None, args: Any, state: Any, model: Any
    ) -> Session | None:
        """Start the meter, and return a session for a call; ``None`` if nothing is measured."""
        self._forget_last()
        callbacks = find_callback_list(self) or []
        prior = self._prior(callbacks)
        if self._is_redundant(prior):
            return None
        self._state_key = f"{STATE_KEY} {self._meter.config.run_folder}" if prior else STATE_KEY
        self._meter._start(
            loop.run_folder(args),
            state=state.stateful_callbacks.get(self._state_key),
            process=loop.process(args, transformers.__version__),
            used_gpus=loop.used_gpus(args, model),
            call=call,
            say=loop.say,
        )
        if not self._meter.is_running or self._meter.run_folder is None:
            return None
        others = OtherTrainerCallbacks(self, callbacks, self._meter.run_folder, self._meter.now_s)
        if prior:
            others = OtherTrainerCallbacks(self, [], None)
        elif any(isinstance(one, CodeCarbonCallback) for one in callbacks):
            self._warn_once(
                "CodeCarbonCallback measures this training too, with its own sensors and "
                "threads; list the integrations that you want, such as "
                "report_to=['tensorboard'], instead of 'all'"
            )
        self._session = Session(self._meter, call, phase, others, self._inputs)
        if phase == "train" and state.global_step:
            self._meter.resumed(state.global_step)
        return self._session

    def _keep(self, state: Any) -> None:
        """Store the meter's state for the next checkpoint, which is written before ``on_save``."""
        state.stateful_callbacks[self._state_key] = self._meter.state()

    def _forget_last(self) -> None:
        """Close the session of a call that has ended without its last hook.

        If the call was found, the meter ends the attempt, or the phases of the call, by itself.
        """
        session, self._session = self._session, None
        if session is not None and session.call is None:
            self._end(session)
        elif session is not None:
            session.close()

    def _running(self) -> Session | None:
        """Return the session if its call is still running, otherwise ``None``."""
        session = self._session
        return session if session is not None and session.is_under_way() else None

    def _begin_alone(self, args: Any, state: Any, model: Any) -> Session | None:
        """Begin a session for ``evaluate`` or ``predict``; inside ``train``, return ``None``."""
        if ActiveCall.find("train", package="transformers") is not None:
            return None
        prediction = ActiveCall.find("predict", package="transformers")
        call = prediction or ActiveCall.find("evaluate", package="transformers")
        return self._begin("predict" if prediction else "validation", call, args, state, model)

    def _end(self, session: Session) -> None:
        """End a session, whose attempt may have ended before."""
        self._session = None
        with session.ending():
            session.close()
