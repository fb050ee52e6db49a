"""A scenario says which cards there are, what they draw, how they are seen and when they fail.

It is written to a text file that the C library reads (``c/scenario.c``), and it is the truth that
tests compare with: ``scenario.energy_j(card, start, end)`` is exact.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.fake_nvml.changes import Change, Settings, log_path, spans
from tests.fake_nvml.model import PowerModel
from tests.fake_nvml.sensor import Latency, Sensor, number
from tests.fake_nvml.signals import Constant, Signal

Group = Literal[
    "power",  # nvmlDeviceGetPowerUsage
    "instant",  # field 186
    "average",  # field 185
    "counter",  # nvmlDeviceGetTotalEnergyConsumption and field 83
    "fields",  # nvmlDeviceGetFieldValues as a whole, on top of its fields
    "samples",
    "memory",
    "processes",
    "light",  # utilisation, temperature, clocks, event reasons, the other fields
    "gpm",  # nvmlGpmSampleGet
    "limits",
    "setters",  # all calls that change a setting
    "identity",  # names, UUID, PCI, MIG
    "init",
    "bus",  # with kind "error": the card is not listed, and its handles fail with GPU_IS_LOST
]
FaultKind = Literal[
    "error", "hang", "freeze", "reset", "add_j", "spike_w", "stale", "duplicate", "unordered"
]


def _now_whole_s() -> float:
    return float(math.floor(time.time()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """One MIG instance; power and energy stay with the card that it is a part of."""

    uuid: str
    gpu_instance: int
    compute_instance: int = 0
    memory_total_bytes: int = 18 * 2**30
    memory_used_bytes: int = 0
    name: str = "NVIDIA H200 MIG 1g.18gb"

    def line(self) -> str:
        numbers = (self.gpu_instance, self.compute_instance)
        memory = (self.memory_total_bytes, self.memory_used_bytes)
        return " ".join(map(str, (*numbers, *memory, self.uuid, self.name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that uses the card, from ``start_s`` to ``end_s`` (since the epoch)."""

    pid: int
    used_bytes: int
    kind: Literal["compute", "graphics", "mps"] = "compute"
    gpu_instance: int = 0xFFFFFFFF
    compute_instance: int = 0xFFFFFFFF
    start_s: float = 0.0
    end_s: float = math.inf

    def line(self) -> str:
        instance = f"{self.gpu_instance} {self.compute_instance}"
        times = f"{self.start_s!r} {min(self.end_s, 1e10)!r}"
        return f"{self.kind} {self.pid} {self.used_bytes} {instance} {times}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something goes wrong from ``start_s`` (since the epoch) until ``end_s``.

    ``error``: calls return ``value`` (an NVML code). ``hang``: calls take ``value`` seconds more.
    ``freeze``: readings stay what they were at ``start_s``. ``reset``: the counter restarts at 0.
    ``add_j``: the counter jumps once by ``value``. ``spike_w``: power readings are ``value`` too
    high. The sample buffer returns samples again (``stale``), each fifth twice (``duplicate``) or
    with neighbours swapped (``unordered``). Group ``"*"`` is every call on a device, but not init.
    """

    group: Group | Literal["*"]
    kind: FaultKind
    start_s: float
    end_s: float = math.inf
    value: float = 0.0
    card: int | None = None

    def line(self) -> str:
        end_s = min(self.end_s, 1e10)
        card = -1 if self.card is None else self.card
        return f"{self.group} {card} {self.start_s!r} {end_s!r} {self.kind} {float(self.value)!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One physical GPU. A number that may also be a signal then changes with time.

    With ``cores`` or ``memory_bus_bits`` of 0, the driver does not support the query.

    With a ``model``, power follows the limit and the locked clocks; the signal is the power at full
    load, without a limit, at the highest clocks. ``can_write=False``: setters return NO_PERMISSION,
    except in processes with ``FAKE_NVML_ROOT`` in their environment.
    """

    signal: Signal
    sensor: Sensor = field(default_factory=Sensor)
    name: str = "Fake GPU"
    uuid: str | None = None
    pci_bus_id: str | None = None
    memory_total_bytes: int = 80 * 2**30
    memory_used_bytes: float | Signal = 2.0 * 2**30
    architecture: int = 9
    compute_capability: tuple[int, int] = (9, 0)
    utilisation_percent: float | Signal = 50.0
    memory_utilisation_percent: float | Signal = 20.0
    temperature_c: float | Signal = 45.0
    sm_clock_mhz: float | Signal = 1500.0
    max_sm_clock_mhz: float = 1980.0
    memory_clock_mhz: float = 2600.0
    cores: int = 0
    memory_bus_bits: int = 0
    min_sm_clock_mhz: float = 345.0
    clock_step_mhz: float = 15.0
    low_memory_clock_mhz: float | None = None
    power_throttle: float | Signal = 0.0
    thermal_throttle: float | Signal = 0.0
    sm_active_percent: float | Signal = 40.0
    sm_occupancy_percent: float | Signal = 15.0
    tensor_active_percent: float | Signal = 10.0
    dram_active_percent: float | Signal = 30.0
    limit_w: float = 700.0
    min_limit_w: float = 200.0
    max_limit_w: float = 700.0
    default_limit_w: float = 700.0
    can_write: bool = True
    model: PowerModel | None = None
    mig_capable: bool = False
    mig_instances: tuple[Mig, ...] = ()
    processes: tuple[Process, ...] = ()
    latency: Mapping[Group, Latency] = field(default_factory=dict)

    def lines(self, index: int) -> Iterator[str]:
        """The card as the scenario file writes it; UUID and bus id default to its index."""
        yield f"card = {index}"
        yield f"name = {self.name}"
        yield f"uuid = {self.uuid or card_uuid(index)}"
        yield f"pci_bus_id = {self.pci_bus_id or f'00000000:{0x17 + index:02X}:00.0'}"
        for key in _PLAIN_NUMBERS:
            yield f"{key} = {number(getattr(self, key))}"
        yield f"can_write = {int(self.can_write)}"
        for key in _MODEL_NUMBERS if self.model else ():
            yield f"{key} = {number(getattr(self.model, key))}"
        if self.model:
            yield f"power_exponent = {number(self.model.exponent)}"
        yield f"capability_major = {self.compute_capability[0]}"
        yield f"capability_minor = {self.compute_capability[1]}"
        yield f"mig_mode = {self._mig_mode()}"
        yield f"signal.power_w = {self.signal.line()}"
        for key in _QUANTITIES:
            value = getattr(self, key)
            signal = Constant(value) if isinstance(value, int | float) else value
            yield f"signal.{key} = {signal.line()}"
        yield from self.sensor.lines()
        for group, cost in self.latency.items():
            numbers = f"{cost.median_s!r} {cost.p99_s!r} {cost.read_at_fraction!r}"
            yield f"latency.{group} = {numbers}"
        yield from (f"mig = {mig.line()}" for mig in self.mig_instances)
        yield from (f"process = {process.line()}" for process in self.processes)

    @property
    def settings(self) -> Settings:
        """The settings before anything is changed."""
        return Settings(limit_w=self.limit_w)

    def clocks(self, settings: Settings) -> tuple[float, float]:
        """The clock and the memory clock under these settings, relative to the highest."""
        x = (settings.clock_mhz or self.max_sm_clock_mhz) / self.max_sm_clock_mhz
        y = (settings.memory_clock_mhz or self.memory_clock_mhz) / self.memory_clock_mhz
        if self.model:
            lowest = self.min_sm_clock_mhz / self.max_sm_clock_mhz
            x = min(x, max(lowest, self.model.clock_under(settings.limit_w, y)))
        return x, y

    def step_s(self, settings: Settings | None = None) -> float:
        """The time of a step under these settings, s; default: before anything is changed."""
        if self.model is None:
            raise ValueError("this card has no model; give it a PowerModel")
        return self.model.step_time_s(*self.clocks(settings or self.settings))

    def scale(self, settings: Settings) -> tuple[float, float]:
        """The offset in W and the factor that turn the signal into the power."""
        if self.model is None:
            return 0.0, 1.0
        factor = settings.load * self.model.scale(*self.clocks(settings))
        return self.model.static_w * (1.0 - factor), factor

    def power_w(self, t_s: float, changes: Iterable[Change] = (), index: int = 0) -> float:
        """The true power at a time since the epoch."""
        for _, end_s, settings in spans(self.settings, changes, index):
            if t_s < end_s:
                offset_w, factor = self.scale(settings)
                return offset_w + factor * self.signal.power_w(t_s)
        raise AssertionError("the last span has no end")

    def energy_j(
        self, start_s: float, end_s: float, changes: Iterable[Change] = (), index: int = 0
    ) -> float:
        """The true energy between two times since the epoch; changes of settings divide it."""
        if end_s < start_s:
            return -self.energy_j(end_s, start_s, changes, index)
        total_j = 0.0
        for span_start_s, span_end_s, settings in spans(self.settings, changes, index):
            from_s, to_s = max(start_s, span_start_s), min(end_s, span_end_s)
            if from_s < to_s:
                offset_w, factor = self.scale(settings)
                total_j += offset_w * (to_s - from_s)
                total_j += factor * self.signal.energy_j(from_s, to_s)
        return total_j

    def _mig_mode(self) -> int:
        if self.mig_instances:
            return 1
        return 0 if self.mig_capable else -1


_QUANTITIES = (
    "utilisation_percent",
    "memory_utilisation_percent",
    "memory_used_bytes",
    "temperature_c",
    "sm_clock_mhz",
    "power_throttle",
    "thermal_throttle",
    "sm_active_percent",
    "sm_occupancy_percent",
    "tensor_active_percent",
    "dram_active_percent",
)
_MODEL_NUMBERS = ("busy_w", "static_w", "memory_power_share", "step_s", "memory_time_ratio")
_PLAIN_NUMBERS = (
    "memory_total_bytes",
    "architecture",
    "max_sm_clock_mhz",
    "memory_clock_mhz",
    "cores",
    "memory_bus_bits",
    "min_sm_clock_mhz",
    "clock_step_mhz",
    "low_memory_clock_mhz",
    "limit_w",
    "min_limit_w",
    "max_limit_w",
    "default_limit_w",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All that the library plays; ``epoch_unix_s`` is where its signals' time is 0.

    The epoch defaults to the whole second now, so that the real clock is near it. It is rounded to
    whole microseconds, as are the stamps of samples.
    """

    cards: tuple[Card, ...]
    faults: tuple[Fault, ...] = ()
    epoch_unix_s: float = field(default_factory=_now_whole_s)
    driver_version: str = "580.159"
    nvml_version: str = "13.580.159"
    cuda_version: int = 13000

    def __post_init__(self) -> None:
        object.__setattr__(self, "epoch_unix_s", round(self.epoch_unix_s * 1e6) / 1e6)

    def power_w(self, card: int, unix_s: float, changes: Iterable[Change] = ()) -> float:
        """True power of a card at a Unix time, after the ``changes`` of settings."""
        return self.cards[card].power_w(unix_s - self.epoch_unix_s, changes, card)

    def energy_j(
        self, card: int, start_unix_s: float, end_unix_s: float, changes: Iterable[Change] = ()
    ) -> float:
        """True energy of a card between two Unix times, with the ``changes`` of settings."""
        start_s, end_s = start_unix_s - self.epoch_unix_s, end_unix_s - self.epoch_unix_s
        return self.cards[card].energy_j(start_s, end_s, changes, card)

    def text(self) -> str:
        """The scenario file."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield f"epoch_ns = {round(self.epoch_unix_s * 1e6) * 1000}"
        yield f"driver_version = {self.driver_version}"
        yield f"nvml_version = {self.nvml_version}"
        yield f"cuda_version = {self.cuda_version}"
        yield from (f"fault = {fault.line()}" for fault in self.faults)
        for index, card in enumerate(self.cards):
            yield from card.lines(index)

    def write(self, path: Path) -> Path:
        """Write the scenario file and return its path; settings are as before any change."""
        log_path(path).unlink(missing_ok=True)
        path.write_text(self.text(), encoding="utf-8")
        return path


def card_uuid(index: int) -> str:
    """The UUID of a card that names none."""
    return f"GPU-00000000-0000-4000-8000-{index:012d}"
