"""The records that all packages share: frozen, in SI units (temperatures in degrees Celsius)."""

import math
from dataclasses import dataclass
from typing import Final, Literal

Scope = Literal["gpu", "host", "machine"]
Origin = Literal["measured", "estimated"]
Kind = Literal["gauge", "counter", "mean"]
Quantity = Literal[
    "power",  # W
    "energy",  # J, counter
    "memory_used",  # byte
    "utilisation",  # share of time in which the device is busy, 0 to 1
    "sm_active",  # share of time in which a multiprocessor has work, mean of all of them, 0 to 1
    "sm_occupancy",  # number of resident warps as a share of the maximum number, 0 to 1
    "tensor_active",  # share of time in which the tensor cores are busy, 0 to 1
    "dram_active",  # share of the maximum memory bandwidth that is used, 0 to 1
    "memory_utilisation",  # share of time in which memory is read or written, 0 to 1
    "temperature",  # degree Celsius
    "clock",  # Hz, of the streaming multiprocessors
    "memory_clock",  # Hz
    "power_limit",  # W, limit of the mean power
    "throttled",  # s, counter: time in which the clocks were throttled
    "rss",  # byte, resident memory of this process and its children
    "allocated",  # byte, in the framework's device allocator
    "peak_allocated",  # byte, highest value of ``allocated`` since the user last reset it
]
# Half-width of the 95 % interval of a normal distribution, in standard deviations: its quantile for
# the probability 0.975.
NORMAL_95: Final = 1.96
# Maximum resolution of a resolved energy, as a share of the energy; see ``Energy.resolution_j``.
# With a larger share, the upper end of the interval is more than 3 times the lower end.
_RESOLVED: Final = 0.5
# How the energy of one device was computed: from its energy counter, from samples that its driver
# buffers, from readings of its power, or by a model.
Method = Literal["counter+samples", "counter+power", "counter", "power", "model", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensor:
    """Known properties of the sensor of a channel.

    Attributes:
        name: the driver call or file that is read, as text for the report.
        period_s: time between two updates of the value; ``None`` if not known.
        window_s: time over which the sensor averages one value; ``None`` if not known.
        lag_s: time by which values are late: a value read at ``t`` belongs to ``t - lag_s``.
        response_s: time constant of the sensor's first-order response.
        relative_error: bound of the systematic error, as a fraction of the value.
        is_buffered: whether the driver stores samples, so that none is lost between two readings.
        is_checked: whether an energy counter is used only while it agrees with the power readings
            (see ``CounterCheck``), because counters of its kind are known to be wrong sometimes.
        citation: publication or document from which these properties are taken; empty if none.
    """

    name: str
    period_s: float | None = None
    window_s: float | None = None
    lag_s: float = 0.0
    response_s: float = 0.0
    relative_error: float = 0.0
    is_buffered: bool = False
    is_checked: bool = False
    citation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Peak performance of one GPU.

    Attributes:
        flops_per_s: FLOP/s with dense matrices in 16-bit formats, sums in float32; ``None`` if not
            known.
        bytes_per_s: memory bandwidth in bytes per second.
        source: how both values are known, as text for the report.
    """

    flops_per_s: float | None
    bytes_per_s: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Something that has readings: a GPU, a CPU package, memory modules, a process, an allocator.

    Attributes:
        key: short name, unique on its host: ``gpu0``, ``cpu0``, ``dram0``, ``process``.
        kind: ``gpu``, ``cpu``, ``dram``, ``machine``, ``process`` or ``allocator``.
        scope: ``gpu``, ``host`` or ``machine``: the sum to which the energy of the device is added;
            ``None`` if the device has no energy. A device with the scope ``machine`` is a sensor of
            the whole machine or board: its energy contains that of all other devices.
        name: display name, such as ``NVIDIA H200``.
        origin: ``measured`` by a sensor or ``estimated`` by a model.
        parent: key of another device whose energy includes the energy of this device. Sums that
            include the parent leave this device out, so that no energy is counted twice. ``None``
            if there is no such device, or if it is the whole machine.
        index: index of a GPU in the list of all GPUs (NVML's index for NVIDIA), or RAPL zone number
            of a CPU; ``None`` if there is none.
        uuid: UUID of the physical device; processes that share a card recognise it by the UUID.
            ``None`` if not known.
        notes: texts for the report, such as that other programs use the device.
        instance_count: number of instances into which NVIDIA's Multi-Instance GPU (MIG) divides
            the device; 0 without MIG.
        instances: UUIDs of the MIG instances that this process uses; empty if the process uses
            the whole device.
        limit_w: limit of the device's mean power; ``None`` if not known.
        memory_bytes: size of the device's memory; ``None`` if not known.
        peak: peak performance; ``None`` if not known, or for MIG instances, which have a part.
    """

    key: str
    kind: str
    scope: Scope | None
    name: str
    origin: Origin = "measured"
    parent: str | None = None
    index: int | None = None
    uuid: str | None = None
    notes: tuple[str, ...] = ()
    instance_count: int = 0
    instances: tuple[str, ...] = ()
    limit_w: float | None = None
    memory_bytes: int | None = None
    peak: Peak | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One quantity of one device that a source can read.

    Attributes:
        device: the device that the source reads.
        quantity: the quantity that the source reads.
        kind: meaning of a value: ``gauge`` is what the sensor shows at the time of the reading,
            ``mean`` is the mean since the previous reading, ``counter`` is a total that never
            decreases.
        sensor: properties of the sensor; ``None`` if not known.
    """

    device: Device
    quantity: Quantity
    kind: Kind
    sensor: Sensor | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one channel.

    Attributes:
        channel: channel of the value.
        t_s: time of the value on the monotonic clock, s.
        value: the value, in the unit that ``Quantity`` states for the channel's quantity.
        t_error_s: bound of the error of ``t_s``: the true time is within ``t_s`` +- ``t_error_s``.
    """

    channel: Channel
    t_s: float
    value: float
    t_error_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Energy used in a time span, with its errors.

    Attributes:
        energy_j: energy in J in the part of the span that readings cover; ``None`` if they cover
            no part of it.
        stderr_j: standard error of ``energy_j`` from causes that differ between spans (noise,
            interpolation).
        edge_j: bound (95 %) of the error from the two edges of the span. Between two readings, the
            energy is interpolated; where power changes at an edge, this moves energy from the side
            with more power to the other side. The error has the same sign each time that the same
            change of power repeats, so the bounds of several spans or devices are added.
        systematic_j: bound of the error from causes that are the same in all spans (gain of the
            sensor, model).
        method: a ``Method`` or the name of another program; ``none`` for unknown energy. For a sum,
            the methods of all known parts.
        coverage: fraction of the span that readings cover, 0 to 1.
    """

    energy_j: float | None
    stderr_j: float = 0.0
    edge_j: float = 0.0
    systematic_j: float = 0.0
    method: str = "none"
    coverage: float = 0.0

    @property
    def error_j(self) -> float:
        """Half-width of the 95 % interval.

        It is the square root of the sum of two squares: ``resolution_j``, and the systematic bound
        (U_RSS of ASME PTC 19.1; the sum of both would be an interval of about 99 %).
        """
        return math.hypot(self.resolution_j, self.systematic_j)

    @property
    def resolution_j(self) -> float:
        """Half-width of the 95 % interval without the systematic bound.

        It is the square root of the sum of two squares: 1.96 standard errors, and the bound of the
        error from the edges.
        """
        return math.hypot(NORMAL_95 * self.stderr_j, self.edge_j)

    @property
    def is_resolved(self) -> bool:
        """Whether ``resolution_j`` is at most half of the energy.

        If the energy is not resolved, the time span was too short for the sensor, and only the
        upper bound ``energy_j + error_j`` should be shown. Unknown energy is not resolved.
        """
        return is_resolved(self.energy_j, self.stderr_j, self.edge_j)

    @property
    def resolved_j(self) -> float | None:
        """The energy if it is resolved; ``None`` if it is not known or not resolved."""
        return self.energy_j if self.is_resolved else None

    def __str__(self) -> str:
        """Return the energy with its error, its upper bound if not resolved, or ``not known``."""
        if self.energy_j is None:
            return "not known"
        if not self.is_resolved:
            return f"< {self.energy_j + self.error_j:.3g} J (too short to measure)"
        return f"{self.energy_j:.6g} J ± {self.error_j:.2g} J"


def is_resolved(energy_j: float | None, stderr_j: float, edge_j: float) -> bool:
    """Return whether the error of an energy without its systematic part is at most half of it.

    The error is ``resolution_j`` of an ``Energy``. The result is ``False`` for unknown energy.

    >>> is_resolved(100.0, 20.0, 0.0), is_resolved(100.0, 20.0, 40.0), is_resolved(0.0, 0.0, 0.0)
    (True, False, True)
    """
    if energy_j is None:
        return False
    return math.hypot(NORMAL_95 * stderr_j, edge_j) <= _RESOLVED * abs(energy_j)
