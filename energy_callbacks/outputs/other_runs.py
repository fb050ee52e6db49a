"""Adds configuration, final figures and report to runs of trackers with few methods for that."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from energy_callbacks.outputs.protocol import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracker:
    """How an experiment tracker receives what belongs to a whole run.

    Attributes:
        name: name of the tracker.
        configure: adds configuration by name to a run.
        summarize: sets final figures by tag in a run.
        attach: adds a file to a run.
    """

    name: str
    configure: Callable[[Any, dict[str, Value]], object]
    summarize: Callable[[Any, dict[str, float]], object]
    attach: Callable[[Any, Path], object]


def _aim_summarize(run: Any, figures: dict[str, float]) -> None:
    run["energy_callbacks_final"] = figures


def _aim_configure(run: Any, config: dict[str, Value]) -> None:
    run["energy_callbacks"] = config


def _clearml_summarize(task: Any, figures: dict[str, float]) -> None:
    for tag, value in figures.items():
        task.get_logger().report_single_value(tag, value)


def _dvclive_summarize(live: Any, figures: dict[str, float]) -> None:
    live.summary.update(figures)
    live.make_summary()


def _neptune_summarize(run: Any, figures: dict[str, float]) -> None:
    for tag, value in figures.items():
        run[tag] = value


def _neptune_configure(run: Any, config: dict[str, Value]) -> None:
    run["energy_callbacks"] = config


TRACKERS: Final = {
    "aim": Tracker(
        name="Aim",
        configure=_aim_configure,
        summarize=_aim_summarize,
        attach=lambda run, path: run.log_artifact(str(path), name=path.name),
    ),
    "clearml": Tracker(
        name="ClearML",
        configure=lambda task, config: task.set_parameters_as_dict({"energy_callbacks": config}),
        summarize=_clearml_summarize,
        attach=lambda task, path: task.upload_artifact(path.name, artifact_object=str(path)),
    ),
    "comet_ml": Tracker(
        name="Comet",
        configure=lambda run, config: run.log_parameters(config, prefix="energy_callbacks"),
        summarize=lambda run, figures: run.log_metrics(figures),
        attach=lambda run, path: run.log_asset(str(path), file_name=path.name),
    ),
    "dvclive": Tracker(
        name="DVCLive",
        configure=lambda live, config: live.log_params({"energy_callbacks": config}),
        summarize=_dvclive_summarize,
        attach=lambda live, path: live.log_artifact(str(path), copy=True),
    ),
    "neptune": Tracker(
        name="Neptune",
        configure=_neptune_configure,
        summarize=_neptune_summarize,
        attach=lambda run, path: run[f"energy_report/{path.suffix[1:]}"].upload(str(path)),
    ),
}
"""The trackers by the top-level package of their runs' classes."""


class OtherRun:
    """A ``RunLog`` for the user's run of one of the ``TRACKERS``.

    Args:
        run: the open run, which this class does not end.
        tracker: how the run receives values.
    """

    def __init__(self, run: Any, tracker: Tracker) -> None:
        self._run = run
        self._tracker = tracker
        self.name = tracker.name

    def begin(self, config: Mapping[str, Value], tag_prefix: str) -> None:  # noqa: ARG002
        """Add the configuration."""
        self._tracker.configure(self._run, dict(config))

    def end(self, figures: Mapping[str, float]) -> None:
        """Set the figures, because the framework may end the run at once."""
        self._tracker.summarize(self._run, dict(figures))

    def report(self, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        """Set the figures of the report, and add its files."""
        self._tracker.summarize(self._run, dict(figures))
        for path in files:
            self._tracker.attach(self._run, path)
