"""Every fault that a sensor, a driver or a disk can have, and what the report must show of it.

Faults begin in the middle of a training of 90 s in virtual time: a plain loop in
``test_faults.py``, a training of each framework in ``integrations/contract/faults.py``.
"""

import math
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pynvml
import pytest

from energy_callbacks import EnergyMeter
from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.core.records import Energy
from energy_callbacks.report import EnergyReport
from energy_callbacks.report.model.runs import DeviceUse
from energy_callbacks.sensing.sources import codecarbon_models
from energy_callbacks.testing import FakeClock
from tests.fake_nvml import (
    Card,
    FakeNvml,
    Fault,
    Scenario,
    Signal,
    Square,
    Staircase,
    a100,
    h200,
)
from tests.fake_nvml.library import load_library, reset_pynvml
from tests.fake_nvml.scenario import FaultKind, Group
from tests.fake_nvml.test_fake_card import CardClock

Play = Callable[..., FakeNvml]

FAULT_S = 30.0
END_S = 90.0
LOAD = Staircase(low_w=100.0, high_w=600.0, step_s=0.3, seed=5)
EPOCH_UNIX_S = 1.7e9
# Seconds from the start. Opening takes a moment; the last second may be provisional.
BEFORE = (10.0, 28.0)
ACROSS = (25.0, 60.0)
AFTER = (62.0, 86.0)
# A card that is back is measured again within this time.
RESUMES_S = 2.0
GAIN = 0.01
NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
UNKNOWN = pynvml.NVML_ERROR_UNKNOWN
LOST = pynvml.NVML_ERROR_GPU_IS_LOST


def fault(
    kind: FaultKind,
    group: Group | str = "*",
    *,
    value: float = 0.0,
    for_s: float = math.inf,
) -> Fault:
    """A fault that begins in the middle of the training."""
    end_s = FAULT_S + for_s
    return Fault(group=group, kind=kind, start_s=FAULT_S, end_s=end_s, value=value)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fault of one card, and what the report must show of it.

    Attributes:
        gap_s: seconds after the fault for which the energy is unknown; 0 if there is no gap.
        says: words of the report that name the fault; ``""`` if it cannot be detected.
        wrong: figures that are known to be wrong during the fault.
    """

    name: str
    fault: Fault
    cards: tuple[Callable[..., Card], ...] = (h200, a100)
    gap_s: float = 0.0
    says: str = ""
    wrong: str = ""


SAMPLED = (h200,)
CASES = (
    Case(
        name="counter not supported any more",
        fault=fault("error", "counter", value=NOT_SUPPORTED),
        says="gpu0: no readings of energy since ",
    ),
    Case(
        name="samples not supported any more",
        fault=fault("error", "samples", value=NOT_SUPPORTED),
        cards=SAMPLED,
        says="gpu0: no readings of power since ",
    ),
    Case(
        name="memory not supported any more",
        fault=fault("error", "memory", value=NOT_SUPPORTED),
        says="gpu0: no readings of memory used since ",
    ),
    Case(
        name="nothing supported for a while",
        fault=fault("error", value=NOT_SUPPORTED, for_s=15.0),
        gap_s=30.0,
        says="readings failed",
    ),
    Case(
        name="unknown error of the counter",
        fault=fault("error", "counter", value=UNKNOWN, for_s=15.0),
        says="gpu0: no readings of energy since ",
    ),
    Case(
        name="unknown error of everything",
        fault=fault("error", value=UNKNOWN, for_s=4.0),
        gap_s=20.0,
        says="readings failed",
    ),
    Case(name="card lost", fault=fault("error", value=LOST), gap_s=math.inf, says="is gone"),
    Case(
        name="card lost for a moment",
        fault=fault("error", value=LOST, for_s=1.0),
        gap_s=1.0 + RESUMES_S,
        says="answers again",
    ),
    Case(
        name="card lost for a while",
        fault=fault("error", value=LOST, for_s=15.0),
        gap_s=15.0 + RESUMES_S,
        says="answers again",
    ),
    Case(
        name="card off the bus for a while",
        fault=fault("error", "bus", for_s=15.0),
        gap_s=15.0 + RESUMES_S,
        says="answers again",
    ),
    Case(
        name="call hangs 30 s",
        fault=fault("hang", value=30.0, for_s=0.5),
        gap_s=32.0,
        says="Readings cover only",
    ),
    Case(name="counter reset to 0", fault=fault("reset", "counter"), says="disagree in"),
    Case(
        name="counter frozen",
        fault=fault("freeze", "counter", for_s=15.0),
        says="gpu0: no readings of energy since ",
    ),
    Case(
        name="samples frozen",
        fault=fault("freeze", "samples", for_s=15.0),
        cards=SAMPLED,
        says="gpu0: no readings of power since ",
    ),
    Case(
        name="counter a megajoule ahead",
        fault=fault("add_j", "counter", value=1e6),
        says="disagree in",
    ),
    Case(
        name="driver unloaded",
        fault=fault("error", value=pynvml.NVML_ERROR_DRIVER_NOT_LOADED),
        gap_s=math.inf,
        says="is gone",
    ),
    Case(
        name="power spike of 10 MW",
        fault=fault("spike_w", value=1e7, for_s=0.3),
        says="power readings are not used",
    ),
    # Every read returns the whole buffer, so repeated samples are normal.
    Case(name="stale samples", fault=fault("stale", "samples", for_s=15.0), cards=SAMPLED),
    Case(
        name="samples twice",
        fault=fault("duplicate", "samples", for_s=15.0),
        cards=SAMPLED,
        says="power samples were repeated or out of order",
    ),
    Case(
        name="samples out of order",
        fault=fault("unordered", "samples", for_s=15.0),
        cards=SAMPLED,
        says="power samples were repeated or out of order",
    ),
)


@dataclass(kw_only=True)
class Run:
    """A training that has ended, and the load of its card.

    Attributes:
        meter: of the training.
        load: power of the card, or of the CPU, as a function of time since ``zero_s``.
        zero_s: monotonic time at which the load begins.
        report: of the run folder.
    """

    meter: EnergyMeter
    load: Signal
    zero_s: float
    report: EnergyReport

    @property
    def cards(self) -> list[DeviceUse]:
        """Return the GPUs of the report."""
        return [device for device in self.report.devices if device.scope == "gpu"]

    def energy(self, window: tuple[float, float], scope: str = "gpu") -> Energy:
        """Return the energy of the card between two moments of the scenario."""
        start_s, end_s = (moment_s + self.zero_s for moment_s in window)
        return self.meter.energy(start_s, end_s, scope)

    def truth_j(self, window: tuple[float, float]) -> float:
        """Return the energy that the card used, in closed form."""
        return self.load.energy_j(*window)

    def says(self, words: str) -> bool:
        """Return whether a warning or a note of the report contains these words."""
        told = [warning.message for warning in self.report.warnings]
        return any(words in sentence for sentence in (*told, *self.report.method_notes))


def clock_of(play: Play, *cards: Card, faults: Sequence[Fault] = ()) -> CardClock:
    """Return a virtual clock of a machine with these cards."""
    scenario = Scenario(cards=cards, faults=tuple(faults), epoch_unix_s=EPOCH_UNIX_S)
    return CardClock(play(scenario).time)


def assert_right_or_gap(run: Run, window: tuple[float, float], *, may_miss: bool) -> None:
    """The truth lies in the stated interval, or the report states how much was not measured."""
    found, truth_j = run.energy(window), run.truth_j(window)
    if may_miss and found.coverage < 0.999:
        assert (found.energy_j or 0.0) <= truth_j + found.error_j
        return
    assert found.energy_j is not None
    assert found.coverage == pytest.approx(1.0, abs=1e-3)
    # The simulated sensors have no gain error, which makes up most of a stated interval.
    assert abs(found.energy_j - truth_j) <= found.resolution_j + GAIN * truth_j, (found, truth_j)


def assert_total(run: Run, *, may_miss: bool) -> None:
    """The report's total and peak are the truth of the whole run, minus what was not measured."""
    total, (device,) = run.report.energy.gpu, run.cards
    truth_j = run.truth_j((0.0, run.report.run.duration_s))
    assert total.energy_j is not None
    unseen_j = (1.0 - total.coverage) * run.report.run.duration_s * LOAD.high_w
    assert total.energy_j <= truth_j + total.error_j
    assert total.energy_j >= truth_j - total.error_j - unseen_j
    assert may_miss or total.coverage > 0.99
    assert device.peak_power_w is not None
    assert device.peak_power_w < 1.2 * LOAD.high_w


def assert_case(run: Run, case: Case) -> None:
    """Figures before, across and after a fault are right, or its gap is shown and named."""
    assert_right_or_gap(run, BEFORE, may_miss=False)
    assert_right_or_gap(run, ACROSS, may_miss=case.gap_s > 0.0)
    assert_right_or_gap(run, AFTER, may_miss=case.gap_s > AFTER[0] - FAULT_S)
    if math.isfinite(case.gap_s):
        assert_right_or_gap(run, (FAULT_S + case.gap_s, AFTER[1]), may_miss=False)
    assert_total(run, may_miss=case.gap_s > 0.0)
    assert run.says(case.says), run.report.warnings


# --- the wall clock


class SetClock(CardClock):
    """A driver whose samples are stamped by a wall clock that jumps; monotonic time goes on."""

    jumps_s = 0.0

    @property
    def _now_s(self) -> float:
        return self._time.monotonic_s() - self.jumps_s

    @_now_s.setter
    def _now_s(self, now_s: float) -> None:
        self._time.advance(max(now_s - self._now_s, 0.0))

    def monotonic_s(self) -> float:
        """Return the virtual monotonic time, in seconds; the wall clock's jumps do not count."""
        return self._now_s

    def set_wall_clock(self, jump_s: float) -> None:
        super().set_wall_clock(jump_s)
        self._time.advance(jump_s)
        self.jumps_s += jump_s


def clock_to_set(play: Play) -> tuple[SetClock, Signal]:
    """Return a virtual clock whose wall clock will jump, and the load of its card.

    The simulated library plays its signal by the wall clock, so the load repeats during the jump of
    two seconds, and the card has no counter, which would jump with it.
    """
    load = Square(low_w=100.0, high_w=600.0, period_s=0.5)
    card = h200(load)
    card = replace(card, sensor=replace(card.sensor, counter_period_s=None))
    return SetClock(clock_of(play, card)._time), load


def assert_clock_was_set(run: Run, jump_s: float) -> None:
    """Energies are as before, except for a gap of the buffer's length."""
    assert_right_or_gap(run, BEFORE, may_miss=False)
    assert_right_or_gap(run, ACROSS, may_miss=True)
    assert run.energy(ACROSS).coverage > 1.0 - 3.0 / (ACROSS[1] - ACROSS[0])
    assert_right_or_gap(run, AFTER, may_miss=False)
    assert run.says(f"The wall clock was set {'forward' if jump_s > 0.0 else 'back'} by 2.0 s")


# --- RAPL


@dataclass(kw_only=True)
class Powercap:
    """One CPU package whose counter file follows the load."""

    root: Path
    range_uj: int = 262_143_328_850
    start_uj: int = 0
    is_readable: bool = True

    def play(self, clock: FakeClock) -> None:
        """Keep the counter file up to date from now on."""
        zero_s = clock.monotonic_s()
        zone = self.root / "intel-rapl:0"
        zone.mkdir(parents=True)
        (zone / "name").write_text("package-0")
        (zone / "max_energy_range_uj").write_text(str(self.range_uj))

        def write() -> None:
            energy_uj = round(1e6 * LOAD.energy_j(0.0, clock.monotonic_s() - zero_s))
            raw_uj = (self.start_uj + energy_uj) % self.range_uj
            # Opening the file for every write would take most of the test's time.
            os.pwrite(file, (str(raw_uj) if self.is_readable else "").ljust(20).encode(), 0)

        file = os.open(zone / "energy_uj", os.O_RDWR | os.O_CREAT)
        write()
        clock.every(0.05, write, "powercap")

    def hide(self, clock: FakeClock, for_s: float) -> None:
        """Make the file unreadable from now on, for a number of seconds."""
        self.is_readable = False
        back_s = clock.monotonic_s() + for_s

        def show() -> None:
            self.is_readable |= clock.monotonic_s() >= back_s

        clock.every(0.5, show, "back")

    def wrap(self) -> None:
        """Let the counter wrap around when the fault begins."""
        self.start_uj = self.range_uj - round(1e6 * LOAD.energy_j(0.0, FAULT_S))


def assert_host_is_right(run: Run) -> None:
    """Every window of the host has full coverage and the right energy."""
    for window in (BEFORE, ACROSS, AFTER):
        found = run.energy(window, "host")
        assert found.energy_j is not None
        assert found.coverage == pytest.approx(1.0, abs=1e-3)
        assert abs(found.energy_j - LOAD.energy_j(*window)) <= found.error_j
        assert found.energy_j == pytest.approx(LOAD.energy_j(*window), rel=0.01)


# --- no driver


def without_driver(play: Play, *, is_installed: bool) -> FakeClock:
    """Return a virtual clock of a machine whose driver is not loaded, or that has no NVML."""
    code = float(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    unloaded = Fault(group="init", kind="error", start_s=0.0, value=code)
    clock = clock_of(play, h200(LOAD), faults=[unloaded])
    if is_installed:
        return clock
    reset_pynvml()
    load_library().fakeNvmlUnload()
    return FakeClock()


# --- CodeCarbon


def break_codecarbon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every import of CodeCarbon fail from now on, with all caches cleared."""
    for name in [*sys.modules, "codecarbon"]:
        if name.partition(".")[0] == "codecarbon":
            monkeypatch.setitem(sys.modules, name, None)
    for function in (*vars(carbon).values(), *vars(codecarbon_models).values()):
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def assert_emissions(run: Run, *, are_known: bool) -> None:
    """Assert that the emissions of a run in Germany are known, or a range with the reason."""
    emissions = run.report.emissions
    assert emissions is not None
    assert run.says("the country 'DEU' needs CodeCarbon's tables") is not are_known
    energy_kwh = (run.report.energy.total.energy_j or 0.0) / 3.6e6
    if are_known:
        assert emissions.kg_per_kwh == pytest.approx(0.381, rel=0.01)  # CodeCarbon 3.3.2
        assert emissions.kg == pytest.approx(energy_kwh * emissions.kg_per_kwh)
    else:
        assert emissions.kg is None
        assert emissions.high_kg >= energy_kwh * 0.757  # 95th percentile of all countries


# --- the disk


def journal_of(folder: Path) -> int:
    """Return the file descriptor of the open journal in a run folder."""
    (path,) = folder.rglob("*.jsonl")
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed by another thread meanwhile
            if link.samefile(path):
                return int(link.name)
    raise AssertionError(f"{path} is not open")


def fill_disk(folder: Path, clock: FakeClock, for_s: float) -> None:
    """Make writes to the journal in a folder fail from now on, for a number of seconds."""
    number = journal_of(folder)
    disk, full = os.dup(number), os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, number)
    os.close(full)
    back_s = clock.monotonic_s() + for_s

    def make_room() -> None:
        if clock.monotonic_s() >= back_s:
            os.dup2(disk, number)

    clock.every(0.5, make_room, "room")


def assert_disk_was_full(run: Run, for_s: float) -> None:
    """Nothing is missing if there is space again; if not, the report states where it ends."""
    found, duration_s = run.report.energy.gpu, run.report.run.duration_s
    assert found.energy_j is not None
    if math.isfinite(for_s):
        assert_total(run, may_miss=False)
        assert not run.says("lines of the journal could not be written")
        [path] = journal.find(run.meter.run_folder or Path())
        rows_s = [line["t_s"] for line in journal.read(path) if line["type"] == "series"]
        assert all(after_s - before_s < 1.0 for before_s, after_s in pairwise([0.0, *rows_s]))
        return
    assert run.says("stopped unexpectedly after")
    assert duration_s == pytest.approx(FAULT_S, abs=2.0)
    assert abs(found.energy_j - run.truth_j((0.0, duration_s))) <= found.error_j + LOAD.high_w
