"""Records of a run, its attempts, ranks, phases and devices, and its curves over time."""

from dataclasses import dataclass
from typing import Literal

from energy_callbacks.accounting.journal.batch_job import Job
from energy_callbacks.core.records import Origin, Scope
from energy_callbacks.report.model.amounts import Figure

Status = Literal["finished", "failed", "interrupted", "cut off", "running"]
Quantity = Literal["data_wait", "samples_per_step", "gpu_power"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportWarning:
    """Something the reader must know before the numbers.

    Attributes:
        code: short and stable, for machines.
        message: what is the matter, in words.
        fix: what to do about it, ``""`` where nothing can be done.
    """

    code: str
    message: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training over all its attempts.

    Attributes:
        started_unix_s: wall time at which the first attempt began.
        duration_s: time measured, without the pauses between attempts.
        status: how the newest attempt ended.
        error: the exception of the newest attempt, in words.
        job: of a batch system, of the newest attempt; ``None`` outside of one.
        host: of the process that leads the newest attempt.
    """

    run_id: str
    name: str | None
    tags: dict[str, str]
    framework: str | None
    framework_version: str | None
    command: str | None
    git_commit: str | None
    started_unix_s: float
    duration_s: float
    status: Status
    error: str | None
    job: Job | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What one process of one attempt saw.

    Attributes:
        offset_s: where the attempt begins on the time axis of the charts (pauses left out).
        steps: optimizer steps executed, also those that a later attempt repeated.
        energy: of the devices that this process owns, so that all rows add up to the total.
    """

    attempt: int
    host: str
    rank: int
    status: Status
    started_unix_s: float
    offset_s: float
    duration_s: float
    steps: int
    samples: int | None
    energy: Figure
    job: Job | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankUse:
    """One rank of an attempt that has several.

    Attributes:
        gpus: keys of the cards that it trains on.
        shares_gpus: whether another rank trains on one of them too.
        steps: optimizer steps executed.
        train_s: time in the phase ``train``.
        data_wait_s: of it, the time in which it waited for its next batch.
        gpu: energy of ``gpus`` in the phase ``train``, as this rank read it; ranks that share a
            card have both read it, so these do not add up.
        gpu_power_w: the same over the time that was seen.
    """

    attempt: int
    host: str
    rank: int
    gpus: tuple[str, ...]
    shares_gpus: bool
    steps: int
    samples: int | None
    train_s: float
    data_wait_s: float | None
    gpu: Figure
    gpu_power_w: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imbalance:
    """A rank that stands out from the others, beyond chance and errors.

    Attributes:
        quantity: what it stands out in: s, samples, or W.
        value: of this rank; of waits, over the steps that all ranks have done.
        median: of the others.
        error: half-width of the 95 % interval of the difference; 0 if things were counted.
        message: the same in words.
    """

    attempt: int
    host: str
    rank: int
    quantity: Quantity
    value: float
    median: float
    error: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory at its highest and on average, in bytes; ``None`` if not known.

    Attributes:
        device_used_peak_bytes: highest on any one GPU, all processes of the card together.
        device_used_mean_bytes: mean of that same GPU.
        peak_allocated_bytes: highest in the framework's allocator of any one process.
        host_rss_peak_bytes: highest resident memory of any one rank with its workers.
        host_rss_mean_bytes: mean of that same rank.
    """

    device_used_peak_bytes: float | None
    peak_allocated_bytes: float | None
    host_rss_peak_bytes: float | None
    host_rss_mean_bytes: float | None
    device_used_mean_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """How busy the parts of a GPU were, in DCGM's terms; means, 0 to 1, ``None`` if not known.

    Attributes:
        sm_active: share of time in which a multiprocessor had work, mean over all of them.
        sm_occupancy: resident warps, as a share of those that are possible.
        tensor_active: share of time in which the tensor cores were busy.
        dram_active: memory bandwidth, as a share of the highest.
    """

    sm_active: float | None
    sm_occupancy: float | None
    tensor_active: float | None
    dram_active: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What one phase took; all phases sum to the totals.

    Attributes:
        share: of the total energy, 0 to 1; ``None`` if either is unknown.
        activity: mean over the GPUs; ``None`` if not known, or the phase too short.
    """

    name: str
    duration_s: float
    gpu: Figure
    host: Figure
    total: Figure
    share: float | None
    activity: Activity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorUse:
    """Which sensor spoke for a quantity of a device."""

    quantity: str
    name: str
    period_s: float | None
    citation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """One physical device over the whole run, counted once however many ranks saw it.

    Attributes:
        counted_in: key of the parent whose energy contains this one's; ``None`` if the
            device itself is part of its scope's sum.
        mean_power_w: energy over the time seen.
        peak_power_w: highest mean over one row of the journal (about a second).
        throttled_s: time in which the driver held the clocks down.
    """

    key: str
    host: str
    name: str
    kind: str
    scope: Scope | None
    origin: Origin
    uuid: str | None
    counted_in: str | None
    sensors: tuple[SensorUse, ...]
    energy: Figure
    mean_power_w: float | None
    peak_power_w: float | None
    memory_peak_bytes: float | None
    utilisation_mean: float | None
    temperature_max_c: float | None
    throttled_s: float | None
    notes: tuple[str, ...]
    activity: Activity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Curves of one device, as means over bins.

    Attributes:
        t_s: end of each bin, in seconds measured since the run began (pauses left out).
        seen_s: seconds of the bin in which power was known;
            ``sum(seen_s * power_w)`` is the energy of the curve.
        power_w: mean while seen; ``None`` if nothing was seen.
        memory_bytes: highest in the bin: device memory in use, resident or allocated memory.
        utilisation: mean share of time in which the device was busy, 0 to 1; like the next two
            empty if the device never said.
        temperature_c: highest in the bin.
        throttled_s: of the bin, the seconds in which the driver held the clocks down.
        peak_allocated_bytes: highest in the bin, of an allocator; empty if none has reported.
    """

    key: str
    host: str
    t_s: tuple[float, ...]
    seen_s: tuple[float, ...]
    power_w: tuple[float | None, ...]
    memory_bytes: tuple[float | None, ...]
    utilisation: tuple[float | None, ...] = ()
    temperature_c: tuple[float | None, ...] = ()
    throttled_s: tuple[float | None, ...] = ()
    peak_allocated_bytes: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A phase on the time axis of the charts."""

    phase: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the training was at moments of the run, and what it had used; n values each.

    Attributes:
        t_s: on the time axis of the charts.
        step: optimizer steps of the run; falls if a resume repeated some.
        samples: of all ranks, each executed step counted; ``None`` if not counted.
        energy_j: of GPUs and host until then, as far as it was seen.
        train_j: of it, in the phase ``train``.
    """

    t_s: tuple[float, ...]
    step: tuple[int, ...]
    samples: tuple[float, ...] | None
    energy_j: tuple[float, ...]
    train_j: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnavailableSensor:
    """A sensor that could not be opened, and what would help."""

    source: str
    reason: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringCost:
    """What measuring itself took; ``None`` if the attempt was cut off.

    Attributes:
        sampler_cpu_s: processor time of the sampler threads, all ranks together.
        core_share: the same as a share of one core.
    """

    sampler_cpu_s: float | None
    core_share: float | None
