"""Adds configuration, final figures and report to a run of MLflow."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core import formatting
from energy_callbacks.core.units import JOULES_PER_WATT_HOUR
from energy_callbacks.outputs.protocol import Value

_FOLDER: Final = "energy_report"
# The description that MLflow shows on the page of a run (MLflow 3.17, ``mlflow_tags.py``).
_NOTE: Final = "mlflow.note.content"


class MlflowRun:
    """A ``RunLog`` for the user's MLflow run, which may have ended before the report is complete.

    Args:
        client: an ``MlflowClient``.
        run_id: id of the run.
    """

    name = "MLflow"

    def __init__(self, client: Any, run_id: str) -> None:
        self._client = client
        self._run_id = run_id

    def begin(self, config: Mapping[str, Value], tag_prefix: str) -> None:  # noqa: ARG002
        """Add parameters such as ``energy_callbacks/batch_size``.

        Parameters that exist are left out, because MLflow does not allow to change their values: a
        resumed run keeps those of its first attempt.
        """
        from mlflow.entities import Param

        existing = self._client.get_run(self._run_id).data.params
        named = {f"energy_callbacks/{name}": value for name, value in config.items()}
        new = [Param(key, str(value)) for key, value in named.items() if key not in existing]
        self._client.log_batch(self._run_id, params=new)

    def end(self, figures: Mapping[str, float]) -> None:
        """Do nothing: each call waits for the server, and a run that has ended accepts figures."""

    def report(self, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        """Add the figures as metrics, the files as artifacts, and a description if there is none.

        MLflow's page groups metrics by the text before the first ``/``.
        """
        from mlflow.entities import Metric, RunTag

        now_ms = int(time.time() * 1e3)
        metrics = [Metric(tag, value, now_ms, 0) for tag, value in figures.items()]
        has_note = self._client.get_run(self._run_id).data.tags.get(_NOTE)
        tags = [] if has_note else [RunTag(_NOTE, _note(figures))]
        self._client.log_batch(self._run_id, metrics=metrics, tags=tags)
        for path in files:
            self._client.log_artifact(self._run_id, str(path), _FOLDER)


def _note(figures: Mapping[str, float]) -> str:
    energy_wh = figures.get("final/total_wh")
    energy = "" if energy_wh is None else formatting.energy(energy_wh * JOULES_PER_WATT_HOUR)
    return f"Energy: {energy or 'not known'}. Report: artifact `{_FOLDER}/energy_report.html`."
