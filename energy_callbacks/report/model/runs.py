"""Records of a run, its attempts, ranks, phases and devices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from energy_callbacks.accounting.journal.batch_job import Job
from energy_callbacks.core.records import Origin, Scope
from energy_callbacks.report.model.amounts import Figure

Status = Literal["finished", "failed", "interrupted", "cut off", "running"]
Quantity = Literal["data_wait", "samples_per_step", "gpu_power"]

# Codes of warnings after which the total is not the energy of the whole run: it is not known, or a
# part of it is missing.
_INVALIDATING: Final = frozenset(
    {
        "earlier_attempts_lost",
        "energy_unknown",
        "gaps",
        "gpu_not_measured",
        "journal_unreadable",
        "low_coverage",
        "no_power",
        "nothing_measured",
        "rank_missing",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportWarning:
    """A warning, or a note on the numbers of the report.

    Attributes:
        code: short identifier, which does not change between versions.
        message: description of the problem.
        fix: how to solve the problem; ``""`` if there is no solution.
    """

    code: str
    message: str
    fix: str = ""

    @property
    def invalidates_total(self) -> bool:
        """Whether the total is not the energy of the whole run; otherwise this is only a note."""
        return self.code in _INVALIDATING


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training, over all its attempts.

    Attributes:
        run_id: identifier that all attempts of the run share.
        name: name that the user gave to the run; ``None`` if none was given.
        tags: tags that the user gave to the run.
        framework: training framework; ``None`` if not known.
        framework_version: version of the framework; ``None`` if not known.
        command: command line of the newest attempt; ``None`` if not known.
        git_commit: commit of the user's repository; ``None`` if not known.
        started_unix_s: wall time at which the first attempt began.
        duration_s: measured time, without the pauses between attempts. If the newest attempt is
            running, it ends at the newest moment at which the energy of all phases is final.
        status: status of the newest attempt, namely the first of these that any of its ranks has:
            ``failed``, ``interrupted``, ``running``, ``cut off``, ``finished``.
        error: exception or other cause that ended the newest attempt early; ``None`` if none.
        job: batch job of the newest attempt; ``None`` outside any batch system.
        host: host of the newest attempt; if it has several hosts, the host of its lead process
            (usually rank 0). ``None`` if not known.
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
    """Time, work and energy of one process in one attempt (one start of the training).

    Attributes:
        attempt: number of the attempt.
        host: name of the host.
        rank: rank of the process.
        status: how the process ended (``cut off``: no totals in its journal), or ``running``.
        started_unix_s: wall time at which the process began to measure.
        offset_s: start of the process on the time axis of the charts, without pauses between
            attempts.
        duration_s: measured time.
        steps: executed optimizer steps, including those that a later attempt repeated.
        samples: samples of this process; ``None`` if not counted.
        energy: energy of the devices that are assigned to this process; each device is assigned to
            one process of the attempt, so that these energies add up to that of the run.
        job: batch job of the process; ``None`` outside any batch system.
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
    """Work, waits and GPU energy of one rank of an attempt with several ranks.

    Attributes:
        attempt: number of the attempt.
        host: name of the host.
        rank: rank of the process.
        gpus: keys of the GPUs on which the rank trains.
        shares_gpus: whether another rank trains on one of these GPUs too.
        steps: executed optimizer steps.
        samples: samples of this rank; ``None`` if not counted.
        train_s: time in the phase ``train``.
        data_wait_s: part of ``train_s`` in which the rank waited for its next batch; ``None`` if
            not known.
        gpu: energy of ``gpus`` in the phase ``train``, as read by this rank. The energy of a GPU
            that several ranks share counts for each of them, so ranks do not add up to the total.
        gpu_power_w: mean power of ``gpus`` in the phase ``train``; ``None`` if the energy is not
            known or not resolved.
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
    """A rank that differs from the others more than chance and measurement errors can explain.

    Attributes:
        attempt: number of the attempt.
        host: name of the host.
        rank: rank that differs.
        quantity: compared quantity: time of waiting for data in s, samples per step, or power in W.
        value: value of the rank; waits are summed over the steps that every rank has executed.
        median: median of the other ranks.
        error: half-width of the 95 % interval of the difference; 0 for samples per step.
        message: the difference as a sentence.
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
    """Peak and mean memory, in bytes; ``None`` if not known.

    Attributes:
        device_used_peak_bytes: highest memory in use on any one GPU, by all processes together.
        peak_allocated_bytes: highest memory in the framework's allocator of any one process.
        host_rss_peak_bytes: highest resident memory of any one rank, including its worker
            processes.
        host_rss_mean_bytes: mean resident memory of the rank with the highest peak.
        device_used_mean_bytes: mean memory in use on the GPU with the highest peak.
    """

    device_used_peak_bytes: float | None
    peak_allocated_bytes: float | None
    host_rss_peak_bytes: float | None
    host_rss_mean_bytes: float | None
    device_used_mean_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Mean use of the parts of a GPU, as shares from 0 to 1; ``None`` if not known.

    The names are those of NVIDIA's Data Center GPU Manager (DCGM).

    Attributes:
        sm_active: share of time in which a multiprocessor had work, mean over all multiprocessors.
        sm_occupancy: resident warps divided by the maximum number.
        tensor_active: share of time in which the tensor cores were busy.
        dram_active: used share of the maximum memory bandwidth.
    """

    sm_active: float | None
    sm_occupancy: float | None
    tensor_active: float | None
    dram_active: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Time and energy of one phase; all phases sum to the totals.

    Attributes:
        name: name of the phase, such as ``train``.
        duration_s: time in the phase.
        gpu: energy of the GPUs in the phase.
        host: energy of the host in the phase.
        total: energy of GPUs and host in the phase.
        share: share of the total energy of the run, 0 to 1; ``None`` if the energy of the phase or
            of the run is not known.
        activity: mean use of the parts of the GPUs; ``None`` if not known, or if the phase was too
            short.
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
    """The sensor that was read for one quantity of a device.

    Attributes:
        quantity: name of the quantity, such as ``power``.
        name: call or file that was read.
        period_s: time between two new values; ``None`` if not known.
        citation: document that states these properties.
    """

    quantity: str
    name: str
    period_s: float | None
    citation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """One device over the whole run, counted once even if several ranks have read it.

    Attributes:
        key: short name, unique on its host, such as ``gpu0``.
        host: name of the host.
        name: name of the product, such as ``NVIDIA H200``.
        kind: ``gpu``, ``cpu``, ``dram``, ``machine``, ``process`` or ``allocator``.
        scope: scope whose sum contains the energy of the device; ``None`` for devices without an
            energy, such as processes and allocators.
        origin: whether a sensor measured the energy or a model estimated it.
        uuid: UUID of the device; ``None`` if it has none.
        counted_in: key of the device whose energy contains that of this device; sums that include
            that device leave this device out. ``None`` if there is no such device with known
            energy; the total is the sum of these devices.
        sensors: sensor of each quantity.
        energy: energy over the whole run.
        mean_power_w: energy divided by the time with readings; ``None`` if not known.
        peak_power_w: highest of the mean powers between consecutive rows of the journal, which are
            about one second apart; ``None`` if not known.
        memory_peak_bytes: highest memory; ``None`` if not known.
        utilisation_mean: mean share of time in which the device was busy, 0 to 1; ``None`` if not
            known.
        temperature_max_c: highest temperature, in degrees Celsius; ``None`` if not known.
        throttled_s: time in which the driver reduced the clocks; ``None`` if not known.
        notes: notes on the device, such as that other processes use it too.
        activity: use of the parts of a GPU; ``None`` if not known.
        limit_w: power limit when the sensor was opened; ``None`` if not known.
        memory_utilisation_mean: mean share of time in which memory was read or written, 0 to 1;
            ``None`` if not known.
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
    limit_w: float | None = None
    memory_utilisation_mean: float | None = None


def devices_in_sum(devices: Sequence[DeviceUse], scope: str) -> list[DeviceUse]:
    """Return the devices whose energies make up the sum of a scope, or ``total``; see ``scopes``.

    Args:
        devices: all devices of a report.
        scope: one of ``sensing.scopes.SCOPES``.
    """
    chosen = [one for one in devices if one.scope and scope in (one.scope, "total")]
    places = {(one.host, one.key) for one in chosen}
    return [one for one in chosen if (one.host, one.counted_in) not in places]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnavailableSensor:
    """A sensor that could not be opened.

    Attributes:
        source: name of the source.
        reason: why the source could not be opened.
        fix: how to make the source available.
    """

    source: str
    reason: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringCost:
    """Processor time of the measurement itself; ``None`` if an attempt is running or was cut off.

    Attributes:
        sampler_cpu_s: processor time of the threads of sources and journals, of all ranks.
        core_share: ``sampler_cpu_s`` divided by ``Run.duration_s``; 1.0 means that all ranks
            together kept one core busy.
    """

    sampler_cpu_s: float | None
    core_share: float | None
