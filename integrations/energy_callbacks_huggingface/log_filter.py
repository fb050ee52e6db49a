"""Selects which of our figures the trainer's other callbacks receive in a row of logs."""

from collections.abc import Callable
from typing import Any

from transformers import DefaultFlowCallback, ProgressCallback, TrainerCallback

from energy_callbacks.accounting.metrics.scalars import Scalars

# Console callbacks receive only the figures with these tags, which may have the user's prefix.
_CONSOLE = (
    "power/gpu_w",
    "power/host_w",
    "energy/total_wh",
    "efficiency/gpu_j_per_sample",
    "efficiency/total_j_per_sample",
    "emissions/total_g",
    "throughput/samples_per_s",
)


def nothing(_: Scalars) -> Scalars:
    """Select no figures, for TensorBoard's callback; ``callback_list.py`` has the reason."""
    return {}


def console(scalars: Scalars) -> Scalars:
    """Return the figures for console callbacks, rounded to four significant digits."""
    return {tag: float(f"{v:.4g}") for tag, v in scalars.items() if tag.endswith(_CONSOLE)}


class LogRow:
    """Stores the newest row (the Trainer's dictionary of logs) and our figures in it."""

    def __init__(self) -> None:
        self._logs: dict[str, Any] | None = None
        self._scalars: Scalars = {}
        self._shown: Scalars = {}

    def put(self, logs: dict[str, Any], scalars: Scalars) -> None:
        """Store a new row and add our figures to it."""
        self._logs, self._scalars, self._shown = logs, scalars, scalars
        logs.update(scalars)

    def show(self, logs: dict[str, Any] | None, select: Callable[[Scalars], Scalars]) -> None:
        """If ``logs`` is the newest row, replace our figures in it with the selected figures.

        Args:
            logs: the logs that a callback is going to receive; ``None`` if there are none.
            select: receives all figures of the row; returns those that the callback receives.
        """
        if logs is None or logs is not self._logs:
            return
        before, self._shown = self._shown, select(self._scalars)
        for tag in before.keys() - self._shown.keys():
            logs.pop(tag, None)
        logs.update(self._shown)


class LogFilter(TrainerCallback):
    """Selects which of our figures the callbacks after this filter receive.

    Args:
        row: the newest row; all filters of a trainer share this object.
        select: receives all figures of a row; returns those that the next callbacks receive.
    """

    def __init__(self, row: LogRow, select: Callable[[Scalars], Scalars]) -> None:
        self._row = row
        self._select = select

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Replace our figures in ``logs`` with the selected figures."""
        self._row.show(logs, self._select)


def has_flow(callbacks: list[Any]) -> bool:
    """Return whether the first callback is the one that decides when to log and save."""
    return bool(callbacks) and type(callbacks[0]) is DefaultFlowCallback


def needed(callbacks: list[Any]) -> list[Any]:
    """Return the callbacks without each filter that is directly before another filter.

    Of two filters next to each other, the second one alone has the same effect.
    """
    following = [*callbacks[1:], None]
    return [
        one
        for one, next_one in zip(callbacks, following, strict=True)
        if not (isinstance(one, LogFilter) and isinstance(next_one, LogFilter))
    ]


class LastCallback(TrainerCallback):
    """Tells our callback when all callbacks have received an event.

    Args:
        ours: our callback, an ``EnergyHooks``.
    """

    def __init__(self, ours: Any) -> None:
        self._ours = ours

    def on_step_end(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any
    ) -> None:
        """Tell our callback that all callbacks have received the event."""
        self._ours.all_received(state, control)

    on_log = on_evaluate = on_predict = on_save = on_epoch_end = on_step_end


# Hooks at the end of a step that take a few microseconds, apart from the ten times per second at
# which the progress bar is drawn.
_BRIEF_HOOKS = tuple(
    one.on_step_end
    for one in (TrainerCallback, DefaultFlowCallback, ProgressCallback, LastCallback)
)


def takes_time(callback: Any) -> bool:
    """Return whether a callback has a hook at the end of a step that is not in ``_BRIEF_HOOKS``."""
    return type(callback).on_step_end not in _BRIEF_HOOKS or "on_step_end" in vars(callback)
