"""Creates the layout of TensorBoard's page "Custom Scalars": charts, some with error bands.

A chart with an error band needs the exact tags of three series: value, lower end, upper end. Other
charts select tags by regular expressions, which TensorBoard matches from the start of a tag.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from energy_callbacks.accounting.metrics.tags import INTERVALS, expected_tags
from energy_callbacks.outputs.summaries import data

# Category titles, chart titles, and the tags of each chart. If a chart's first tag has an interval
# (see ``INTERVALS``), the chart shows only this tag, with the interval as a band.
_CHARTS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "Energy": {
        "power (W)": ("power/gpu_w", "power/host_w"),
        "energy so far (Wh)": ("energy/total_wh", "energy/gpu_wh", "energy/host_wh"),
        "emissions so far (g CO2e), 95 % interval": ("emissions/total_g",),
    },
    "Energy per unit of work": {
        "total energy of a sample (J), 95 % interval": ("efficiency/total_j_per_sample",),
        "GPU energy of a sample (J), 95 % interval": ("efficiency/gpu_j_per_sample",),
        "GPU energy of a token (J), 95 % interval": ("efficiency/gpu_j_per_token",),
        "GPU energy of a step (J), 95 % interval": ("efficiency/gpu_j_per_step",),
    },
    "Throughput and memory": {
        "samples per second": ("throughput/samples_per_s",),
        "tokens per second": ("throughput/tokens_per_s",),
        "share of time waiting for data": ("throughput/data_wait_fraction",),
        "memory (GiB)": (
            "memory/device_used_gib",
            "memory/peak_allocated_gib",
            "memory/host_rss_gib",
        ),
    },
    "GPU": {
        "activity (share)": (
            "gpu/utilisation",
            "gpu/sm_active",
            "gpu/sm_occupancy",
            "gpu/tensor_active",
            "gpu/dram_active",
            "gpu/memory_utilisation",
            "gpu/throttled_fraction",
        ),
        "temperature (degree Celsius)": ("gpu/temperature_c",),
        "clock (MHz)": ("gpu/sm_clock_mhz", "gpu/memory_clock_mhz"),
        "power limit (W)": ("gpu/power_limit_w",),
    },
}


def tags_of(row: Mapping[str, float]) -> tuple[str, ...]:
    """Return the tags that a training can have, based on one row of its scalars.

    Tags of emissions, efficiency and throughput are included only if the row has them, tags of GPUs
    only if the row has ``efficiency/gpu_j_per_step``. All other tags are included even if the row
    lacks them, because the row may have been logged before their first reading.

    Args:
        row: scalars by tag, of a row that contains an ``efficiency/`` tag.
    """
    expected = expected_tags(
        gpu="efficiency/gpu_j_per_step" in row,
        tokens="throughput/tokens_per_s" in row,
        waits="throughput/data_wait_fraction" in row,
    )
    optional = ("emissions/", "throughput/samples", "efficiency/")
    return tuple(tag for tag in expected if tag in row or not tag.startswith(optional))


def layout(tags: Collection[str], *, prefix: str = "") -> Any:
    """Return the layout as a summary for TensorBoard's plugin ``custom_scalar``.

    Args:
        tags: tags that the training can have; charts that show none of them are left out.
        prefix: prefix that the user's logger adds to each tag.
    """
    from tensorboard.plugins.custom_scalar import layout_pb2, metadata

    categories = [
        layout_pb2.Category(title=title, chart=found)
        for title, charts in _CHARTS.items()
        if (found := list(_charts(charts, tags, prefix)))
    ]
    content = layout_pb2.Layout(category=categories).SerializeToString()
    return data(metadata.CONFIG_SUMMARY_TAG, metadata.PLUGIN_NAME, content)


def _charts(
    charts: dict[str, tuple[str, ...]], tags: Collection[str], prefix: str
) -> Iterator[Any]:
    from tensorboard.plugins.custom_scalar import layout_pb2 as pb

    for title, wanted in charts.items():
        known = [tag for tag in wanted if tag in tags]
        if wanted[0] in INTERVALS and known:
            value, lower, upper = (f"{prefix}{wanted[0]}{end}" for end in ("", "_lo", "_hi"))
            series = pb.MarginChartContent.Series(value=value, lower=lower, upper=upper)
            yield pb.Chart(title=title, margin=pb.MarginChartContent(series=[series]))
        elif known:
            patterns = [f"^{re.escape(prefix + tag)}$" for tag in known]
            yield pb.Chart(title=title, multiline=pb.MultilineChartContent(tag=patterns))
