"""The hooks that the Trainer calls at every step; see ``hooks.py`` for all hooks."""

from typing import Any

from energy_callbacks.accounting.step_marks import READY, STEP
from energy_callbacks.core.guard import give_up, harmless
from energy_callbacks_huggingface.sessions import EnergySessions


class StepHooks(EnergySessions):
    """Reports steps to the session. On most steps, it reads the clock and appends to a queue."""

    # The hooks of a step are not decorated, name all arguments that the Trainer passes, and at most
    # steps call no function that is written in Python: in a training, each such call takes about a
    # microsecond, and so does a dictionary of arguments.

    def on_step_begin(  # noqa: PLR0917 - see above
        self,
        args: Any,
        state: Any,
        control: Any,
        model: Any = None,
        processing_class: Any = None,
        optimizer: Any = None,
        lr_scheduler: Any = None,
        train_dataloader: Any = None,
        eval_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        """Start an optimizer step. All its micro-batches have been fetched."""
        try:
            if (session := self._session) is not None:
                marks = session.marks
                session.seen_s = now_s = marks.now_s()
                marks.append((READY, now_s, None, None, None))
                session.predicts_since_s = None
                if session.counts_inputs:
                    session.inputs.expect(is_first=True)
        except Exception:  # noqa: BLE001 - a bug here must not stop the training
            give_up(self, "on_step_begin")

    @harmless
    def on_substep_end(self, /, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End a micro-batch that is not the last of its step."""
        if (session := self._session) is not None:
            session.end_micro_batch()

    def on_step_end(  # noqa: PLR0917 - see above
        self,
        args: Any,
        state: Any,
        control: Any,
        model: Any = None,
        processing_class: Any = None,
        optimizer: Any = None,
        lr_scheduler: Any = None,
        train_dataloader: Any = None,
        eval_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        """End an optimizer step."""
        session = self._session
        try:
            if session is not None:
                samples = session.step_size
                if samples is None:
                    session.end_step(args, state, train_dataloader)
                else:
                    marks = session.marks
                    session.seen_s = session.settled_s = now_s = marks.now_s()
                    marks.append((STEP, now_s, samples, None, None))
                if control.should_save or control.should_evaluate:
                    session.begin_window()
                if control.should_save:
                    self._keep(state)
                if not session.has_budget:
                    return
        except Exception:  # noqa: BLE001 - a bug here must not stop the training
            give_up(self, "on_step_end")
        # Without a session, the other processes still wait for the vote of this one.
        if (session is None or session.has_budget) and self._meter.is_over_budget():
            control.should_training_stop = True
            control.should_save |= args.save_strategy != "no"

    @harmless
    def all_received(self, state: Any, control: Any) -> None:
        """Mark that the loop waits for data: all callbacks have received an event.

        ``LastCallback`` in ``log_filter.py`` calls this method.
        """
        if (session := self._session) is not None:
            session.others.remove_added()
            session.wait_for_data()
            if control.should_save or control.should_evaluate:
                session.begin_window()
            if control.should_save:
                self._keep(state)
