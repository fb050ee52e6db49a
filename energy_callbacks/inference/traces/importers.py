"""Reads CSV files of other profilers as windows; their source is ``imported``.

- Zeus, ``summary_power_GPU.csv``: a training at each power limit. A sample is an example of the
  published training set, and an epoch is one pass through it.
- PctoDL, ``mps_results_*.csv``: ``p_list`` and ``b_list`` are shares and batches of the processes.
  A row of zeros is a configuration that ran out of memory.
- The recordings of MPS on an H200: ``model`` is ``resnet50|resnet50``, with a name for each tenant.
"""

from collections.abc import Callable
from typing import Any, Final

from energy_callbacks.inference.records import Configuration, MeasuredWindow, Tenant
from energy_callbacks.inference.traces import table
from energy_callbacks.inference.traces.cells import Line

# Examples of the training sets: CIFAR-100 (Krizhevsky 2009), ILSVRC 2012 (Russakovsky 2015),
# utterances of LibriSpeech 960 h (Panayotov 2015), ratings of MovieLens 1M (Harper 2015), questions
# of SQuAD 1.1 (Rajpurkar 2016), tweets of Sentiment140 (Go 2009).
_SAMPLES: Final = {
    "cifar100": 50_000,
    "imagenet": 1_281_167,
    "librispeech": 281_241,
    "movielens-1m": 1_000_209,
    "squad": 87_599,
    "sentiment140": 1_600_000,
}


def zeus(line: Line) -> MeasuredWindow:
    """Return a training of Zeus; its dataset is named with the optimizer, as ``squad, adamw``."""
    dataset = line.text("dataset")
    if dataset not in _SAMPLES:
        known = ", ".join(_SAMPLES)
        raise line.error("dataset", f"the samples of {dataset!r} are not known, only of {known}")
    tenant = Tenant(
        model=line.text("network"), share_pct=100.0, batch=int(line.above_0("batch_size"))
    )
    epoch_s, power_w = line.above_0("time_per_epoch"), line.above_0("average_power")
    return MeasuredWindow(
        configuration=Configuration(tenants=(tenant,), power_limit_w=line.known("power_limit")),
        source="imported",
        mode="train",
        gpu_name=line.path.stem.removeprefix("summary_power_"),
        dataset=f"{dataset}, {line.text('optimizer')}",
        window_s=epoch_s,
        throughput_per_s=_SAMPLES[dataset] / epoch_s,
        power_mean_w=power_w,
        energy_j=power_w * epoch_s,
        note="Zeus",
    )


def pctodl(line: Line) -> MeasuredWindow:
    """Return a row of PctoDL; its model is that of every process."""
    models = [line.text("model_name")] * len(line.list("p_list"))
    tenants = table.tenants(line, models, of_shares="p_list", of_batches="b_list")
    figures: dict[str, Any] = {
        "throughput_per_s": line.number("throughput_total"),
        "power_mean_w": line.number("power_avg"),
        "power_max_w": line.number("power_max"),
        "sm_util_pct": line.number("sm_util"),
        "mem_util_pct": line.number("mem_util"),
        "sm_mhz_measured": line.number("sm_freq"),
    }
    is_oom = not any(figures.values())
    return MeasuredWindow(
        configuration=Configuration(
            tenants=tenants,
            sm_mhz=line.number("target_freq") or None,
            mem_mhz=line.number("mem_freq") or None,
        ),
        source="imported",
        status="oom" if is_oom else "ok",
        note="PctoDL",
        **({} if is_oom else figures),
    )


def h200_mps(line: Line) -> MeasuredWindow:
    """Return a window of the recordings on an H200, which were measured for this package."""
    return MeasuredWindow(
        configuration=Configuration(tenants=table.tenants(line, line.text("model").split("|"))),
        source="imported",
        status=line.word("status", ("ok", "oom", "timeout", "throttled", "error")),
        gpu_name="NVIDIA H200",
        dataset="synthetic",
        sm_mhz_measured=line.number("sm_mhz_meas"),
        window_s=line.number("window_s"),
        throughput_per_s=line.number("throughput_total"),
        tenant_throughputs_per_s=line.numbers("throughput_per_tenant"),
        latency_p50_ms=line.number("latency_ms_p50"),
        latency_p95_ms=line.number("latency_ms_p95"),
        power_mean_w=line.number("power_mean_w"),
        power_p95_w=line.number("power_p95_w"),
        energy_j=line.number("energy_j_counter"),
        sm_util_pct=line.number("gpu_util"),
        mem_util_pct=line.number("mem_util"),
        temperature_c=line.number("temp_c"),
    )


# The columns that a file of each format has, and the function that reads a line of it.
FORMATS: Final[tuple[tuple[frozenset[str], Callable[[Line], MeasuredWindow]], ...]] = (
    (frozenset({"schema_version", "source", "share_pct"}), table.window),
    (frozenset({"network", "batch_size", "power_limit", "time_per_epoch"}), zeus),
    (frozenset({"model_name", "p_list", "b_list", "throughput_total"}), pctodl),
    (frozenset({"tenants_n", "share_pct", "sm_mhz_meas", "throughput_total"}), h200_mps),
)
