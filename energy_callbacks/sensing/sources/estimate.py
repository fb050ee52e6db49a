"""CPU and memory power if no sensor exists: CodeCarbon's models, marked as estimates.

CPU: ``P = TDP * (0.1 + 0.9 * load**3)``, the ``cpu_load`` mode of CodeCarbon 3.3.2
(``external/hardware.py``). The TDP comes from CodeCarbon's table; a CPU that is not in it counts
4 W for each thread. Memory: a constant, from CodeCarbon's guess of the number of modules.
The load is our own reading: CodeCarbon's would move the baseline of ``psutil.cpu_percent``, which
the user may be watching too.
"""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from pathlib import Path

from energy_callbacks.core.errors import ReadingMissed, SourceUnavailable
from energy_callbacks.core.records import Channel, Device, Reading, Sensor
from energy_callbacks.core.units import gibibytes
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.quiet_codecarbon import quiet_codecarbon
from energy_callbacks.sensing.schedule import until_reading_s

# For a CPU that is not in the table: codecarbon 3.3.2, core/cpu.py, DEFAULT_POWER_PER_CORE.
_UNKNOWN_POWER_PER_THREAD_W = 4.0

# Against an external meter CodeCarbon was wrong by up to 40 % of a machine's energy (Fischer,
# arXiv 2509.22092). The CPU alone can only be worse; rounded up.
_KNOWN_TDP_ERROR = 0.5
# A guess of the TDP, a virtual machine's share of a package and a count of memory modules that
# are not known are accurate to no better than "between nothing and twice as much".
_GUESS_ERROR = 1.0
_CITATION = "bound assumed; CodeCarbon against a meter: errors up to 40 %, arXiv 2509.22092"

_REINSTALL = "run: pip install 'codecarbon>=2.8,<4'"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Processor:
    """The CPU as the operating system describes it."""

    model: str
    sockets: int
    is_virtual: bool


class HostEstimateSource:
    """Estimated power of the whole machine's CPUs, of its memory, or of both.

    Args:
        clock: where time comes from.
        cpu: whether to estimate the CPUs.
        ram: whether to estimate the memory.
    """

    def __init__(self, clock: Clock, cpu: bool, ram: bool) -> None:
        if not (cpu or ram):
            raise ValueError("nothing to estimate: got cpu=False, ram=False; set one of them")
        self._clock = clock
        self._wants_cpu = cpu
        self._wants_ram = ram
        self._cpu: tuple[Channel, _CpuModel] | None = None
        self._ram: tuple[Channel, float] | None = None
        self._opened_s: float | None = None
        self._read_s = clock.monotonic_s()

    @property
    def name(self) -> str:
        """See ``Source.name``."""
        return "CodeCarbon estimate"

    @property
    def interval_s(self) -> float:
        """An interval holds 80 ticks of each CPU's 10 ms clock."""
        return until_reading_s(self._read_s)

    def open(self) -> Sequence[Channel]:
        """Look the machine up in CodeCarbon's tables; no network, no file, no subprocess.

        Raises:
            SourceUnavailable: if CodeCarbon is missing or has changed beyond recognition.
        """
        self.close()
        self._opened_s = self._clock.monotonic_s()
        load = _Load()  # looking up takes a second at first: what is used meanwhile counts too
        with quiet_codecarbon():
            if self._wants_cpu:
                self._cpu = _cpu(load)
            if self._wants_ram:
                self._ram = _ram()
        return [part[0] for part in (self._cpu, self._ram) if part]

    def read(self) -> Sequence[Reading]:
        """Mean power since the last call, or since ``open``; nothing before a CPU tick passed.

        Raises:
            ReadingMissed: if the operating system did not say how busy it was.
        """
        t_s = self._read_s = self._clock.monotonic_s()
        found = [self._ram] if self._ram else []
        if self._cpu:
            channel, model = self._cpu
            power_w = model.mean_power_w()
            if power_w is None:
                return []
            found.insert(0, (channel, power_w))
        # The first mean begins at ``open``: a reading there says so.
        moments = [t_s] if self._opened_s is None else [self._opened_s, t_s]
        self._opened_s = None
        return [
            Reading(channel, moment_s, power_w)
            for channel, power_w in found
            for moment_s in moments
        ]

    def close(self) -> None:
        """See ``Source.close``."""
        self._cpu = self._ram = None


class _Load:
    """How busy the CPUs were between two calls.

    Raises:
        SourceUnavailable: if the operating system does not say.
    """

    def __init__(self) -> None:
        try:
            self._busy_s, self._total_s = _cpu_seconds()
        except ReadingMissed as error:
            raise SourceUnavailable(f"no CPU load to estimate from: {error}") from error

    def mean_frac(self) -> float | None:
        """Busy share since the last call that gave one; ``None`` before the next tick of 10 ms.

        Raises:
            ReadingMissed: if CPU time could not be read.
        """
        busy_s, total_s = _cpu_seconds()
        busy_delta_s, total_delta_s = busy_s - self._busy_s, total_s - self._total_s
        if total_delta_s <= 0:
            return None
        self._busy_s, self._total_s = busy_s, total_s
        # The kernel may take back waiting time, which makes a difference a little negative.
        return min(max(busy_delta_s / total_delta_s, 0.0), 1.0)


class _CpuModel:
    """Mean power of the CPUs between two calls, from how busy they were."""

    def __init__(self, tdp_w: float, load: _Load) -> None:
        self._tdp_w = tdp_w
        self._load = load

    def mean_power_w(self) -> float | None:
        """Mean since the last call that gave one, see ``_Load.mean_frac``."""
        load_frac = self._load.mean_frac()
        return None if load_frac is None else self._tdp_w * (0.1 + 0.9 * load_frac**3)


def _cpu_seconds() -> tuple[float, float]:
    """Busy and total CPU seconds since boot, over all CPUs.

    Raises:
        ReadingMissed: if the operating system does not say.
    """
    import psutil

    try:
        times = psutil.cpu_times()
    except (OSError, RuntimeError) as error:
        raise ReadingMissed(f"CPU times could not be read: {error}; asked again later") from error
    # Linux counts the time of guests in ``user`` and ``nice`` already (proc(5)).
    total_s = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total_s - times.idle - getattr(times, "iowait", 0.0), total_s


def _cpu(load: _Load) -> tuple[Channel, _CpuModel]:
    import psutil

    processor = _processor(_cpuinfo())
    tdp_w = _table_tdp_w(processor.model)
    is_known = tdp_w is not None
    if tdp_w is None:
        total_tdp_w = _UNKNOWN_POWER_PER_THREAD_W * (psutil.cpu_count() or 1)
    else:
        total_tdp_w = tdp_w * processor.sockets
    sensor = Sensor(
        name=(
            f"CodeCarbon CPU model: {processor.model}, TDP {total_tdp_w:g} W, "
            "P = TDP (0.1 + 0.9 load^3)"
        ),
        relative_error=_KNOWN_TDP_ERROR if is_known and not processor.is_virtual else _GUESS_ERROR,
        citation=_CITATION,
    )
    device = Device(
        key="cpu",
        kind="cpu",
        scope="host",
        name=processor.model,
        origin="estimated",
        notes=_cpu_notes(processor, is_known),
    )
    channel = Channel(device=device, quantity="power", kind="mean", sensor=sensor)
    return channel, _CpuModel(total_tdp_w, load)


def _cpu_notes(processor: _Processor, is_known: bool) -> tuple[str, ...]:
    notes = ["estimated from the CPU load of the whole machine, other programs included"]
    if not is_known:
        notes.append("CPU is not in CodeCarbon's table: 4 W for each thread are assumed")
    if processor.is_virtual:
        notes.append("virtual machine: its share of the physical CPU's power is not known")
    return tuple(notes)


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _processor(cpuinfo: str) -> _Processor:
    """What Linux says of the CPU.

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


@cache
def _table_tdp_w(model: str) -> float | None:
    """The thermal design power of one package, ``None`` if the table does not have it.

    It compares the model with every name in the table, so each model is looked up once.
    """
    try:
        from codecarbon.core.cpu import TDP

        # Its constructor would find the model through py-cpuinfo, which forks processes.
        table = TDP.__new__(TDP)
        tdp_w = table._get_cpu_power_from_registry(model)  # noqa: SLF001 - no public look-up
    except Exception as error:
        raise _unusable("CPU table", error) from error
    return None if tdp_w is None else _checked_w(float(tdp_w), "CPU table")


def _ram() -> tuple[Channel, float]:
    import psutil

    size_bytes = psutil.virtual_memory().total
    try:
        power_w = _ram_power_w(gibibytes(size_bytes))
    except Exception as error:
        raise _unusable("memory model", error) from error
    name = f"memory, {gibibytes(size_bytes):.0f} GiB"
    sensor = Sensor(
        name=f"CodeCarbon memory model: {name}, constant {power_w:g} W",
        relative_error=_GUESS_ERROR,
        citation=_CITATION,
    )
    device = Device(
        key="ram",
        kind="dram",
        scope="host",
        name=name,
        origin="estimated",
        notes=("a constant guessed from the size of the whole machine's memory, not its use",),
    )
    channel = Channel(device=device, quantity="power", kind="mean", sensor=sensor)
    return channel, _checked_w(power_w, "memory model")


def _ram_power_w(size_gib: float) -> float:
    try:
        from codecarbon.external.ram import RAM  # pyright: ignore[reportAttributeAccessIssue]
    except ModuleNotFoundError:
        return _ram_power_before_3_w(size_gib)
    # Its public ``total_power`` turns every failure into 0 W.
    return float(RAM()._calculate_ram_power(size_gib))  # noqa: SLF001


def _ram_power_before_3_w(size_gib: float) -> float:
    """CodeCarbon 2.8 has one figure for each GiB, in another module."""
    from codecarbon.external.hardware import RAM  # pyright: ignore[reportAttributeAccessIssue]

    return float(RAM.power_per_GB * size_gib)


def _checked_w(power_w: float, part: str) -> float:
    if not (isfinite(power_w) and power_w > 0):
        raise _unusable(part, ValueError(f"it says {power_w} W"))
    return power_w


def _unusable(part: str, error: Exception) -> SourceUnavailable:
    try:
        installed = version("codecarbon")
    except PackageNotFoundError:
        installed = "is not installed"
    reason = f"CodeCarbon's {part} cannot be used (codecarbon {installed}): {error!r}"
    return SourceUnavailable(reason, _REINSTALL)
