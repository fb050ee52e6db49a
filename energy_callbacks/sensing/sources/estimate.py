"""Estimates CPU and memory power with CodeCarbon's models, for machines without sensors.

CPU: ``P = TDP * (0.1 + 0.9 * load**3)``. The TDP (thermal design power) comes from CodeCarbon's
table; for a CPU that is not in the table, 4 W per hardware thread are assumed. Memory: a constant
power that depends on the size of the memory. The devices are marked as estimated. See
``codecarbon_models``.
"""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from energy_callbacks.core.errors import ReadingMissed, SourceUnavailable
from energy_callbacks.core.records import Channel, Device, Reading, Sensor
from energy_callbacks.core.units import gibibytes
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.schedule import until_reading_s
from energy_callbacks.sensing.sources import codecarbon_models

# TDP per hardware thread that is assumed for a CPU that is not in the table (codecarbon 3.3.2,
# core/cpu.py, DEFAULT_POWER_PER_CORE).
_UNKNOWN_POWER_PER_THREAD_W = 4.0

# Bound of the relative error if the TDP is known. Compared with an external meter, CodeCarbon was
# wrong by up to 40 % of a machine's energy (Fischer, arXiv 2509.22092). The bound is larger,
# because the error of the CPU alone may be larger.
_KNOWN_TDP_ERROR = 0.5
# Bound of the relative error of a CPU whose TDP is guessed, of a virtual machine's CPU, and of the
# memory: the true power may be anywhere between zero and twice the estimate.
_GUESS_ERROR = 1.0
_CITATION = "bound assumed; CodeCarbon against a meter: errors up to 40 %, arXiv 2509.22092"

_MeanPower = Callable[[], float | None]
"""Returns the mean power, W, since the last call that returned a power; ``None`` if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Processor:
    """The CPUs of this machine, as Linux describes them.

    Attributes:
        model: model name of the CPUs.
        sockets: number of CPU packages.
        is_virtual: whether this is a virtual machine.
    """

    model: str
    sockets: int
    is_virtual: bool


class HostEstimateSource:
    """Estimates the power of all CPUs of the machine, of its memory, or of both.

    Args:
        clock: clock that gives the times of the readings.
        cpu: whether to estimate the CPUs.
        ram: whether to estimate the memory.
    """

    name = "CodeCarbon estimate"

    def __init__(self, clock: Clock, cpu: bool, ram: bool) -> None:
        if not (cpu or ram):
            raise ValueError(
                "nothing to estimate: got cpu=False, ram=False; set one of them to True"
            )
        self._clock = clock
        self._wants_cpu = cpu
        self._wants_ram = ram
        self._models: list[tuple[Channel, _MeanPower]] = []
        self._opened_s: float | None = None
        self._read_s = clock.monotonic_s()

    @property
    def interval_s(self) -> float:
        """Seconds from the last reading to the next common reading moment (see ``schedule``).

        The moments are 0.8 s apart, which is long compared with the 10 ms steps of CPU time.
        """
        return until_reading_s(self._read_s)

    def open(self) -> Sequence[Channel]:
        """Look up the machine in CodeCarbon's tables, and return the channels.

        This uses no network and no subprocess.

        Raises:
            SourceUnavailable: if CodeCarbon's table cannot be read, or if the operating system does
                not report CPU times.
        """
        self.close()
        self._opened_s = self._clock.monotonic_s()
        load = _Load()  # created first, so that the load covers the look-up
        if self._wants_cpu:
            self._models.append(_cpu(load))
        if self._wants_ram:
            self._models.append(_ram())
        return [channel for channel, _ in self._models]

    def read(self) -> Sequence[Reading]:
        """Return the mean power since the last call that returned readings, or since ``open``.

        The list is empty if CPUs are estimated and the kernel's CPU time has not increased since
        then. CPU time increases in steps of 10 ms.

        Raises:
            ReadingMissed: if the operating system did not report the CPU load.
        """
        t_s = self._read_s = self._clock.monotonic_s()
        powers = [(channel, mean_power_w()) for channel, mean_power_w in self._models]
        known = [(channel, power_w) for channel, power_w in powers if power_w is not None]
        if len(known) < len(powers):
            return []
        # The first mean is reported twice: at the time of ``open``, when its interval begins, and
        # now, when the interval ends.
        times_s = [t_s] if self._opened_s is None else [self._opened_s, t_s]
        self._opened_s = None
        return [Reading(channel, at_s, power_w) for channel, power_w in known for at_s in times_s]

    def close(self) -> None:
        """See ``Source.close``."""
        self._models = []


class _Load:
    """Measures the mean load of all CPUs between two calls of ``mean_frac``.

    Raises:
        SourceUnavailable: if the operating system does not report CPU times.
    """

    def __init__(self) -> None:
        try:
            self._busy_s, self._total_s = _cpu_seconds()
        except ReadingMissed as error:
            raise SourceUnavailable(f"no CPU load to estimate from: {error}") from error

    def mean_frac(self) -> float | None:
        """Return the busy fraction of all CPUs since the last call that returned a fraction.

        The first call returns the fraction since this object was created. Returns ``None`` if the
        kernel's CPU time, which increases in steps of 10 ms, has not increased since then.

        Raises:
            ReadingMissed: if CPU time could not be read.
        """
        busy_s, total_s = _cpu_seconds()
        busy_delta_s, total_delta_s = busy_s - self._busy_s, total_s - self._total_s
        if total_delta_s <= 0:
            return None
        self._busy_s, self._total_s = busy_s, total_s
        # If the kernel's I/O waiting time decreases, the total may rise less than the busy time.
        return min(max(busy_delta_s / total_delta_s, 0.0), 1.0)


def _cpu_seconds() -> tuple[float, float]:
    """Return busy and total CPU seconds since boot, summed over all CPUs.

    Raises:
        ReadingMissed: if the operating system does not report them.
    """
    import psutil

    try:
        times = psutil.cpu_times()
    except (OSError, RuntimeError) as error:
        raise ReadingMissed(
            f"CPU times could not be read: {error}; they are read again later"
        ) from error
    # Linux includes the time of guests (virtual machines) in ``user`` and ``nice`` (proc(5)).
    total_s = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total_s - times.idle - getattr(times, "iowait", 0.0), total_s


def _cpu(load: _Load) -> tuple[Channel, _MeanPower]:
    import psutil

    processor = _processor(_cpuinfo())
    tdp_w = codecarbon_models.tdp_w(processor.model)
    is_known = tdp_w is not None
    if tdp_w is None:
        total_tdp_w = _UNKNOWN_POWER_PER_THREAD_W * (psutil.cpu_count() or 1)
    else:
        total_tdp_w = tdp_w * processor.sockets
    sensor = (
        f"CodeCarbon CPU model: {processor.model}, TDP {total_tdp_w:g} W, "
        "P = TDP (0.1 + 0.9 load^3)"
    )
    error = _KNOWN_TDP_ERROR if is_known and not processor.is_virtual else _GUESS_ERROR
    notes = _cpu_notes(processor, is_known)

    def mean_power_w() -> float | None:
        load_frac = load.mean_frac()
        return None if load_frac is None else codecarbon_models.cpu_power_w(total_tdp_w, load_frac)

    channel = _channel("cpu", "cpu", processor.model, sensor=(sensor, error), notes=notes)
    return channel, mean_power_w


def _channel(
    key: str, kind: str, name: str, *, sensor: tuple[str, float], notes: tuple[str, ...]
) -> Channel:
    """Return the channel of an estimated power; ``sensor`` is the model's name and error bound."""
    device = Device(key=key, kind=kind, scope="host", name=name, origin="estimated", notes=notes)
    model = Sensor(name=sensor[0], relative_error=sensor[1], citation=_CITATION)
    return Channel(device=device, quantity="power", kind="mean", sensor=model)


def _cpu_notes(processor: _Processor, is_known: bool) -> tuple[str, ...]:
    notes = ["estimated from the CPU load of the whole machine, other programs included"]
    if not is_known:
        notes.append("the CPU is not in CodeCarbon's table: 4 W for each thread are assumed")
    if processor.is_virtual:
        notes.append("virtual machine: its share of the physical CPU's power is not known")
    return tuple(notes)


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _processor(cpuinfo: str) -> _Processor:
    """Return the CPUs that the text of ``/proc/cpuinfo`` describes.

    >>> _processor("flags : fpu hypervisor").is_virtual
    True
    """
    fields = [line.partition(":") for line in cpuinfo.splitlines()]
    values = [(key.strip(), value.strip()) for key, _, value in fields]
    models = [value for key, value in values if key == "model name"]
    sockets = {value for key, value in values if key == "physical id"}
    flags = next((value.split() for key, value in values if key == "flags"), [])
    return _Processor(
        model=models[0] if models else f"unknown {platform.machine()} CPU",
        sockets=len(sockets) or 1,
        is_virtual="hypervisor" in flags,
    )


def _ram() -> tuple[Channel, _MeanPower]:
    import psutil

    size_gib = gibibytes(psutil.virtual_memory().total)
    power_w = codecarbon_models.memory_power_w(size_gib)
    name = f"memory, {size_gib:.0f} GiB"
    sensor = (f"CodeCarbon memory model: {name}, constant {power_w:g} W", _GUESS_ERROR)
    notes = ("a constant that follows from the total memory of the machine, not from its use",)
    return _channel("ram", "dram", name, sensor=sensor, notes=notes), lambda: power_w
