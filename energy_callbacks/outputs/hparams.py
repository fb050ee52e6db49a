"""A training as a session of TensorBoard's page "HParams", which compares trainings.

A session is one run directory. It begins with its hyperparameters and ends with its status. Its
metrics are the last values of the run's scalars. The experiment lists the columns of the page.
"""

from collections.abc import Iterable, Mapping
from typing import Any

Value = str | float | bool


def session_start(values: Mapping[str, Value], unix_s: float) -> Any:
    """The hyperparameters of a training.

    Args:
        values: by name.
        unix_s: wall time of its start.
    """
    from tensorboard.plugins.hparams import plugin_data_pb2 as pb

    start = pb.SessionStartInfo(start_time_secs=unix_s)
    for name, value in values.items():
        setattr(start.hparams[name], _field(value), value)
    return _summary("session_start_info", start)


def session_end(unix_s: float, *, is_success: bool) -> Any:
    """The status of a training at its end, and the wall time."""
    from tensorboard.plugins.hparams import api_pb2
    from tensorboard.plugins.hparams import plugin_data_pb2 as pb

    status = api_pb2.STATUS_SUCCESS if is_success else api_pb2.STATUS_FAILURE
    return _summary("session_end_info", pb.SessionEndInfo(status=status, end_time_secs=unix_s))


def experiment(values: Mapping[str, Value], metrics: Iterable[str], unix_s: float) -> Any:
    """The columns of the page. TensorBoard uses those of the first run that has any.

    Args:
        values: hyperparameters by name.
        metrics: tags of scalars.
        unix_s: current wall time.
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
    """The field of ``google.protobuf.Value`` for the type of a value."""
    if isinstance(value, bool):
        return "bool_value"
    return "string_value" if isinstance(value, str) else "number_value"


def _summary(name: str, content: Any) -> Any:
    """A summary without a number: the plugin reads its metadata."""
    from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams import plugin_data_pb2 as pb

    about = metadata.create_summary_metadata(pb.HParamsPluginData(**{name: content}))
    value = Summary.Value(tag=f"_hparams_/{name}", metadata=about, tensor=metadata.NULL_TENSOR)
    return Summary(value=[value])
