"""Filters our figures in logged rows for each of the other callbacks."""

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from energy_callbacks.accounting.metrics.scalars import Scalars

# What a line of the console still holds, with four digits as HF prints its own.
_CONSOLE = frozenset(
    (
        "power/gpu_w",
        "power/host_w",
        "energy/total_wh",
        "efficiency/gpu_j_per_sample",
        "efficiency/total_j_per_sample",
        "emissions/total_g",
        "throughput/samples_per_s",
    )
)


class LogRow:
    """Our figures in the row of logs that is being handed around."""

    def __init__(self) -> None:
        self._logs: dict[str, Any] | None = None
        self._scalars: Scalars = {}

    def put(self, logs: dict[str, Any], scalars: Scalars) -> None:
        """From now on this is the row."""
        self._logs, self._scalars = logs, scalars
        logs.update(scalars)

    def show(self, logs: dict[str, Any] | None, scalars: Scalars) -> None:
        """Let what comes next see these figures of ours, and no others, in the row."""
        if logs is None or logs is not self._logs:
            return
        for tag in self._scalars:
            logs.pop(tag, None)
        logs.update(scalars)

    def nothing(self) -> Scalars:
        """For TensorBoard, which has them already."""
        return {}

    def everything(self) -> Scalars:
        """For callbacks that report."""
        return self._scalars

    def selection(self) -> Scalars:
        """For people who read along."""
        return {t: float(f"{v:.4g}") for t, v in self._scalars.items() if t in _CONSOLE}


class LogFilter(TrainerCallback):
    """Placed directly before or after another callback.

    Args:
        row: that is being handed around.
        shown: what of it the callbacks after it see.
    """

    def __init__(self, row: LogRow, shown: Callable[[], Scalars]) -> None:
        self._row = row
        self._shown = shown

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """A row comes by."""
        self._row.show(logs, self._shown())


class LastCallback(TrainerCallback):
    """Stands last: when an event has reached it, nothing but data is waited for any more.

    Args:
        ours: our callback.
    """

    def __init__(self, ours: Any) -> None:
        self._ours = ours

    def on_step_end(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any
    ) -> None:
        """All callbacks have had the event."""
        self._ours.wait_for_data()

    on_log = on_evaluate = on_predict = on_save = on_epoch_end = on_step_end
