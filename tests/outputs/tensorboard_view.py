"""Reads a log directory with TensorBoard's own plugins."""

import json
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.context import RequestContext
from tensorboard.data.provider import RunTagFilter
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.custom_scalar.custom_scalars_plugin import CustomScalarsPlugin
from tensorboard.plugins.hparams import (
    api_pb2,
    backend_context,
    get_experiment,
    list_session_groups,
)
from tensorboard.plugins.scalar.scalars_plugin import ScalarsPlugin


class TensorBoardView:
    """A log directory as a browser shows it.

    Args:
        folder: with run directories in it.
    """

    def __init__(self, folder: Path) -> None:
        runs = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={"scalars": 1000})
        runs.AddRunsFromDirectory(str(folder))
        runs.Reload()
        self._data = data_provider.MultiplexerDataProvider(runs, str(folder))
        self._ctx = RequestContext()
        plugins: dict[str, Any] = {}
        self._context = TBContext(
            data_provider=self._data, logdir=str(folder), plugin_name_to_instance=plugins
        )
        plugins["scalars"] = ScalarsPlugin(self._context)

    def charts(self) -> dict[str, list[str]]:
        """Title to tags of each chart of the page Custom Scalars; a margin has three."""
        layout = json.loads(CustomScalarsPlugin(self._context).layout_impl(self._ctx, "") or "{}")
        found = {}
        for chart in (one for category in layout.get("category", []) for one in category["chart"]):
            series = chart.get("margin", {}).get("series", [])
            found[chart["title"]] = [
                *chart.get("multiline", {}).get("tag", []),
                *(one[end] for one in series for end in ("value", "lower", "upper")),
            ]
        return found

    def matches(self, run: str, pattern: str) -> list[str]:
        """Tags of scalars that match a line of a chart."""
        plugin = CustomScalarsPlugin(self._context)
        return sorted(plugin.scalars_impl(self._ctx, run, pattern, "")["tag_to_events"])

    def _hparams(self) -> backend_context.Context:
        return backend_context.Context(self._context)

    def metrics(self) -> list[str]:
        """Columns of the page HParams that are metrics."""
        request = api_pb2.GetExperimentRequest(include_metrics=True)
        handler = get_experiment.Handler(self._ctx, self._hparams(), "", request)
        return [metric.name.tag for metric in handler.run().metric_infos]

    def hparams(self) -> list[str]:
        """Columns of it that are hyperparameters."""
        handler = get_experiment.Handler(
            self._ctx, self._hparams(), "", api_pb2.GetExperimentRequest()
        )
        return [one.name for one in handler.run().hparam_infos]

    def sessions(self) -> dict[str, Any]:
        """Its rows: run to a session group."""
        statuses = [
            api_pb2.STATUS_UNKNOWN,
            api_pb2.STATUS_SUCCESS,
            api_pb2.STATUS_FAILURE,
            api_pb2.STATUS_RUNNING,
        ]
        request = api_pb2.ListSessionGroupsRequest(
            start_index=0,
            slice_size=100,
            allowed_statuses=statuses,
            include_metrics=True,
            aggregation_type=api_pb2.AGGREGATION_AVG,
        )
        experiment = self._hparams().experiment_from_metadata(
            self._ctx,
            "",
            include_metrics=True,
            hparams_run_to_tag_to_content=self._hparams().hparams_metadata(self._ctx, ""),
            data_provider_hparams=[],
        )
        request.col_params.extend(
            api_pb2.ColParams(metric=metric.name) for metric in experiment.metric_infos
        )
        handler = list_session_groups.Handler(self._ctx, self._hparams(), "", request)
        return {group.name: group for group in handler.run().session_groups}

    def texts(self, run: str, tag: str) -> list[str]:
        """What the page Text shows, before Markdown."""
        found = self._data.read_tensors(
            self._ctx, experiment_id="", plugin_name="text", downsample=100,
            run_tag_filter=RunTagFilter(runs=[run], tags=[tag]),
        )  # fmt: skip
        return [point.numpy.item().decode() for point in found[run][tag]]

    def images(self, run: str) -> dict[str, list[bytes]]:
        """Tag to pictures of the page Images."""
        found = self._data.read_blob_sequences(
            self._ctx, experiment_id="", plugin_name="images", downsample=100,
            run_tag_filter=RunTagFilter(runs=[run]),
        )  # fmt: skip
        return {
            tag: [self._data.read_blob(self._ctx, blob_key=p.values[2].blob_key) for p in points]
            for tag, points in found.get(run, {}).items()
        }


def values(group: Any) -> dict[str, float]:
    """Metrics of a session group."""
    return {one.name.tag: one.value for one in group.metric_values}


def parameters(group: Any) -> dict[str, Any]:
    """Hyperparameters of a session group."""
    return {name: getattr(v, v.WhichOneof("kind")) for name, v in group.hparams.items()}
