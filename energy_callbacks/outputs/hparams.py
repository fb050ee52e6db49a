"""Creates the summaries for TensorBoard's page "HParams", which compares trainings.

In TensorBoard's terms, each run directory is a session, and an experiment is a set of sessions.
A session needs a summary with its hyperparameters at the start, and one with its status at the end.
The page shows the last values of each session's scalars as metrics. A summary of the experiment
lists the columns of the page.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from energy_callbacks.outputs.protocol import Value


def session_start(values: Mapping[str, Value], unix_s: float) -> Any:
    """Return the summary with the hyperparameters of a training.

    Args:
        values: hyperparameters by name.
        unix_s: wall time of the training's start, in Unix seconds.
    """
    from tensorboard.plugins.hparams import plugin_data_pb2 as pb

    start = pb.SessionStartInfo(start_time_secs=unix_s)
    for name, value in values.items():
        setattr(start.hparams[name], _field(value), value)
    return _summary("session_start_info", start)


def session_end(unix_s: float, *, is_success: bool) -> Any:
    """Return the summary with the status of a training and the Unix time of its end."""
    from tensorboard.plugins.hparams import api_pb2
    from tensorboard.plugins.hparams import plugin_data_pb2 as pb

    status = api_pb2.STATUS_SUCCESS if is_success else api_pb2.STATUS_FAILURE
    return _summary("session_end_info", pb.SessionEndInfo(status=status, end_time_secs=unix_s))


def experiment(values: Mapping[str, Value], metrics: Iterable[str], unix_s: float) -> Any:
    """Return the summary that lists the columns of the page.

    TensorBoard uses the list of the first run directory that has one.

    Args:
        values: hyperparameters by name; each one is a column.
        metrics: tags of scalars; each one is a column.
        unix_s: current wall time, in Unix seconds.
    """
    from tensorboard.plugins.hparams import api_pb2 as api

    kinds = {"bool_value": api.DATA_TYPE_BOOL, "number_value": api.DATA_TYPE_FLOAT64}
    return _summary(
        "experiment",
        api.Experiment(
            hparam_infos=[
                api.HParamInfo(name=name, type=kinds.get(_field(value), api.DATA_TYPE_STRING))
                for name, value in values.items()
            ],
            metric_infos=[api.MetricInfo(name=api.MetricName(tag=tag)) for tag in metrics],
            time_created_secs=unix_s,
        ),
    )


def _field(value: Value) -> str:
    """Return the field of ``google.protobuf.Value`` for the type of a value."""
    if isinstance(value, bool):
        return "bool_value"
    return "string_value" if isinstance(value, str) else "number_value"


def _summary(name: str, content: Any) -> Any:
    """Return a summary without values, with the content in its metadata, which the page reads."""
    from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams import plugin_data_pb2 as pb

    about = metadata.create_summary_metadata(pb.HParamsPluginData(**{name: content}))
    value = Summary.Value(tag=f"_hparams_/{name}", metadata=about, tensor=metadata.NULL_TENSOR)
    return Summary(value=[value])
