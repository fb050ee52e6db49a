"""Configurations of a GPU that several models share, their measurements and their predictions."""

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from energy_callbacks.powercap.settings import Knob

Source = Literal["measured", "simulated", "imported"]
Mode = Literal["infer", "train"]
Phase = Literal["idle", "static", "anchor", "clock", "online"]
Status = Literal["ok", "oom", "timeout", "throttled", "error"]
IDENTITY: Final = ("gpu_name", "dataset", "mode")
"""Fields of windows and predictions that say what they hold for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A process that runs one model on a GPU.

    Attributes:
        model: name of the model, or ``module:function``.
        share_pct: share of the GPU's multiprocessors that the process may use, in percent: MPS's
            active thread percentage.
        batch: samples in a batch.
    """

    model: str
    share_pct: float
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Settings and tenants of a GPU.

    Attributes:
        tenants: the processes on the GPU; empty for an idle GPU.
        sm_mhz: clock of the multiprocessors in MHz; ``None``: the GPU chooses.
        mem_mhz: clock of the memory in MHz; ``None``: the GPU chooses.
        power_limit_w: power limit in W; ``None``: unchanged.
    """

    tenants: tuple[Tenant, ...]
    sm_mhz: float | None = None
    mem_mhz: float | None = None
    power_limit_w: float | None = None


def most_tenants(share_pct: float) -> int:
    """Return how many tenants with this share a GPU has room for, despite rounding errors."""
    return int(100.0 / share_pct + 1e-9)


def needed(configuration: Configuration) -> dict[Knob, float]:
    """Return the settings that a configuration needs, by knob, in the unit of the knob."""
    values: dict[Knob, float | None] = {
        "limit": configuration.power_limit_w,
        "memory_clock": configuration.mem_mhz,
        "clock": configuration.sm_mhz,
    }
    return {knob: value for knob, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWindow:
    """One measurement: a row of a trace. ``None`` is an unknown value.

    Attributes:
        configuration: what was set.
        source: where the row comes from.
        status: ``"ok"``, or why the measurement failed; the figures are then ``None``.
        phase: kind of measurement: ``"idle"`` without processes, ``"static"`` with processes that
            wait, ``"anchor"`` over shares and batches, ``"clock"`` over clocks, ``"online"`` while
            requests are served.
        mode: inference or training.
        run_id: identifies the profile.
        timestamp_utc: end of the window, ISO 8601.
        gpu_uuid: UUID of the GPU.
        gpu_name: name of the GPU.
        driver: version of the driver.
        dataset: name of the data.
        sm_mhz_measured: mean clock of the multiprocessors, MHz.
        warmup_s: time before the window, s.
        window_s: length of the window, s.
        steps: batches that ended in the window.
        throughput_per_s: samples per second of all tenants.
        tenant_throughputs_per_s: samples per second of each tenant.
        latency_p50_ms: median time of a batch, ms.
        latency_p95_ms: 95 % quantile of the time of a batch, ms.
        latency_p99_ms: 99 % quantile of the time of a batch, ms.
        power_mean_w: mean power of the GPU, W.
        power_p95_w: 95 % quantile of its power, W.
        power_max_w: its largest power, W.
        energy_j: its energy in the window, J.
        sm_util_pct: time in which a kernel ran, percent.
        mem_util_pct: time in which memory was read or written, percent.
        temperature_c: temperature of the GPU, degrees Celsius.
        note: text, such as an error message.
    """

    configuration: Configuration
    source: Source
    status: Status = "ok"
    phase: Phase = "anchor"
    mode: Mode = "infer"
    run_id: str = ""
    timestamp_utc: str = ""
    gpu_uuid: str = ""
    gpu_name: str = ""
    driver: str = ""
    dataset: str = ""
    sm_mhz_measured: float | None = None
    warmup_s: float | None = None
    window_s: float | None = None
    steps: int | None = None
    throughput_per_s: float | None = None
    tenant_throughputs_per_s: tuple[float, ...] = ()
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    latency_p99_ms: float | None = None
    power_mean_w: float | None = None
    power_p95_w: float | None = None
    power_max_w: float | None = None
    energy_j: float | None = None
    sm_util_pct: float | None = None
    mem_util_pct: float | None = None
    temperature_c: float | None = None
    note: str = ""


class Interval(NamedTuple):
    """A predicted value and the interval that contains the true value in 90 % of all cases."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a configuration is predicted to do. ``None``: the data do not allow a prediction.

    Attributes:
        throughput_per_s: samples per second of all tenants.
        power_w: mean power of the GPU, W.
        tenant_throughputs_per_s: samples per second of each tenant.
        tenant_latencies_ms: time of a batch of each tenant, ms.
        sm_util_pct: time in which a kernel runs, percent.
        mem_util_pct: time in which memory is read or written, percent.
        source: ``"simulated"`` if the predictor was fitted to simulated rows.
        gpu_name: name of the GPU for which it holds; empty if it is not known.
        dataset: name of the data for which it holds; empty if it is not known.
        mode: inference or training; ``None`` if it is not known.
    """

    throughput_per_s: Interval
    power_w: Interval
    tenant_throughputs_per_s: tuple[Interval, ...] = ()
    tenant_latencies_ms: tuple[Interval, ...] = ()
    sm_util_pct: Interval | None = None
    mem_util_pct: Interval | None = None
    source: Source = "measured"
    gpu_name: str = ""
    dataset: str = ""
    mode: Mode | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """What the prediction holds for: the values of ``IDENTITY`` by name."""
        return {name: getattr(self, name) for name in IDENTITY}
