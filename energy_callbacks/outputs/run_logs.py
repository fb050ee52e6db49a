"""The runs of experiment trackers that a training has open; their failures do not end it."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from energy_callbacks.core.guard import ForeignCalls
from energy_callbacks.outputs.protocol import RunLog, Value

_FILES = ("energy_report.html", "energy_report.json")


class RunLogs:
    """Calls each run; a failure is logged and does not prevent later calls of the same run.

    Args:
        runs: the open runs.
        now_s: returns the monotonic time, s.
    """

    def __init__(
        self, runs: Iterable[RunLog] = (), now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._runs = tuple(runs)
        self._now_s = now_s

    def __bool__(self) -> bool:
        return bool(self._runs)

    def begin(self, config: Mapping[str, Value], tag_prefix: str) -> None:
        """See ``RunLog.begin``."""
        warning = "the configuration of the energy callback is not in the run of {}"
        self._each(warning, lambda run: run.begin(config, tag_prefix))

    def end(self, figures: Mapping[str, float]) -> None:
        """See ``RunLog.end``."""
        warning = "the final figures of the energy callback are not in the run of {} yet"
        self._each(warning, lambda run: run.end(figures))

    def report(self, figures: Mapping[str, float], folder: Path) -> None:
        """See ``RunLog.report``.

        Args:
            figures: values by tag, from the report.
            folder: run folder with the files of the report.
        """
        warning = (
            f"the energy report {folder / _FILES[0]} is not in the run of {{}}; if the run was "
            "ended before the report was complete, call wait_for_report() before you end the run"
        )
        files = [folder / name for name in _FILES]
        self._each(warning, lambda run: run.report(figures, files))

    def _each(self, warning: str, act: Callable[[RunLog], None]) -> None:
        for run in self._runs:
            # A new object per call: no failure may prevent another call.
            calls = ForeignCalls(warning.format(run.name), self._now_s)
            calls.call(lambda run=run: act(run))  # type: ignore[misc]
