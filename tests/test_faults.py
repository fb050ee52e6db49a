"""Each fault that a sensor, a driver or a disk can have, begun in the middle of a training.

The training is a plain loop of 90 s on virtual time, so that the truth is known; what needs real
time is in ``tests/integrations/lightning/test_faults.py``. Fault by fault: the training ends as
without us, no hook waits, and each figure is right within its stated interval or shows a gap.
"""

import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting import carbon
from energy_callbacks.records import Energy
from energy_callbacks.report import EnergyReport, build
from energy_callbacks.report.parts import DeviceUse
from energy_callbacks.sensing.sources.rapl import RaplSource
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
    fixtures,
    h200,
)
from tests.fake_nvml.library import load_library, reset_pynvml
from tests.fake_nvml.scenario import FaultKind, Group
from tests.test_fake_card import CardClock

fake_nvml = fixtures.fake_nvml
Play = Callable[..., FakeNvml]

FAULT_S = 30.0
END_S = 90.0
LOAD = Staircase(low_w=100.0, high_w=600.0, step_s=0.3, seed=5)
EPOCH_UNIX_S = 1.7e9
# From the start of the scenario; opening takes a moment, and a last second may be provisional.
BEFORE = (10.0, 28.0)
ACROSS = (25.0, 60.0)
AFTER = (62.0, 86.0)
LONGEST_HOOK_S = 0.005
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
    """A fault of one card, and what must be seen of it.

    Attributes:
        gap_s: seconds from the fault on in which nothing may be known; 0 where the figures go on.
        says: words of the warning that names it; ``""`` where nobody has to know.
        wrong: what is known to be wrong under it.
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
        says="gpu0: no energy since ",
    ),
    Case(
        name="samples not supported any more",
        fault=fault("error", "samples", value=NOT_SUPPORTED),
        cards=SAMPLED,
        says="gpu0: no power since ",
    ),
    Case(
        name="memory not supported any more",
        fault=fault("error", "memory", value=NOT_SUPPORTED),
        says="gpu0: no memory used since ",
    ),
    Case(
        name="nothing supported for a while",
        fault=fault("error", value=NOT_SUPPORTED, for_s=15.0),
        gap_s=30.0,
        says="missed",
    ),
    Case(
        name="unknown error of the counter",
        fault=fault("error", "counter", value=UNKNOWN, for_s=15.0),
        says="gpu0: no energy since ",
    ),
    Case(
        name="unknown error of everything",
        fault=fault("error", value=UNKNOWN, for_s=4.0),
        gap_s=20.0,
        says="missed",
    ),
    Case(name="card lost", fault=fault("error", value=LOST), gap_s=math.inf, says="is gone"),
    Case(name="call hangs 30 s", fault=fault("hang", value=30.0, for_s=0.5), gap_s=32.0),
    Case(name="counter reset to 0", fault=fault("reset", "counter"), says="told different stories"),
    Case(
        name="counter frozen",
        fault=fault("freeze", "counter", for_s=15.0),
        says="gpu0: no energy since ",
    ),
    Case(
        name="samples frozen",
        fault=fault("freeze", "samples", for_s=15.0),
        cards=SAMPLED,
        says="gpu0: no power since ",
    ),
    Case(
        name="counter a megajoule ahead",
        fault=fault("add_j", "counter", value=1e6),
        says="told different stories",
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
    ),
    Case(name="stale samples", fault=fault("stale", "samples", for_s=15.0), cards=SAMPLED),
    Case(name="samples twice", fault=fault("duplicate", "samples", for_s=15.0), cards=SAMPLED),
    Case(
        name="samples out of order", fault=fault("unordered", "samples", for_s=15.0), cards=SAMPLED
    ),
)
EVERY_CASE = [
    pytest.param(
        case,
        card,
        id=f"{case.name}-{card.__name__}",
        marks=[pytest.mark.xfail(strict=True, reason=case.wrong)] if case.wrong else [],
    )
    for case in CASES
    for card in case.cards
]


@dataclass(kw_only=True)
class Run:
    """A training that has ended."""

    meter: EnergyMeter
    load: Signal
    zero_s: float
    hooks_s: list[tuple[float, float]]
    report: EnergyReport

    @property
    def cards(self) -> list[DeviceUse]:
        """GPUs in the report."""
        return [device for device in self.report.devices if device.scope == "gpu"]

    @property
    def steps(self) -> int:
        """Beside a hook for the phase's begin and one for its end there are two for each step."""
        return (len(self.hooks_s) - 2) // 2

    def energy(self, window: tuple[float, float]) -> Energy:
        """Of the card, between two moments of the scenario."""
        start_s, end_s = (moment_s + self.zero_s for moment_s in window)
        return self.meter.energy(start_s, end_s, "gpu")

    def truth_j(self, window: tuple[float, float]) -> float:
        """What the card really used."""
        return self.load.energy_j(*window)

    def says(self, words: str) -> bool:
        """Whether a warning of the report holds these words."""
        return any(words in warning.message for warning in self.report.warnings)


def trained(
    folder: Path,
    clock: FakeClock,
    load: Signal = LOAD,
    middle: Callable[[], object] | None = None,
    **meter: Any,
) -> Run:
    """Ninety seconds of training from now on; in the middle something happens."""
    zero_s = clock.monotonic_s()
    config = EnergyConfig(report_dir=folder, country="DEU")
    running = EnergyMeter(config=config, clock=clock, **meter).start()
    hooks_s = train(running, clock, zero_s + END_S, middle)
    running.stop()
    report = build(folder)
    return Run(meter=running, load=load, zero_s=zero_s, hooks_s=hooks_s, report=report)


def clock_of(play: Play, *cards: Card, faults: Sequence[Fault] = ()) -> CardClock:
    """Time of a machine with these cards."""
    scenario = Scenario(cards=cards, faults=tuple(faults), epoch_unix_s=EPOCH_UNIX_S)
    return CardClock(play(scenario).time)


def train(
    meter: EnergyMeter, clock: FakeClock, end_s: float, middle: Callable[[], object] | None = None
) -> list[tuple[float, float]]:
    """The loop of a user; how long each of our hooks took, by the clock and of the processor."""
    hooks_s = []

    def hook(call: Callable[[], object]) -> None:
        before_s, cpu_before_s = time.perf_counter(), time.thread_time()
        call()
        cpu_s = time.thread_time() - cpu_before_s
        hooks_s.append((time.perf_counter() - before_s, cpu_s))

    hook(lambda: meter.enter("train"))
    while clock.monotonic_s() < end_s:
        clock.advance(0.1)
        hook(lambda: meter.step(samples=8))
        hook(meter.scalars)
        if middle is not None and clock.monotonic_s() > end_s - END_S + FAULT_S:
            middle, _ = None, middle()
    hook(lambda: meter.leave("train"))
    return hooks_s


def assert_no_hook_waited(hooks_s: Sequence[tuple[float, float]]) -> None:
    """No hook worked for 5 ms; that one in four is held up longer is a busy machine's doing."""
    wall_s, cpu_s = (sorted(column) for column in zip(*hooks_s, strict=True))
    assert cpu_s[int(0.99 * len(cpu_s)) - 1] < LONGEST_HOOK_S
    assert wall_s[len(wall_s) // 2] < LONGEST_HOOK_S
    assert wall_s[-1] < 1.0


def assert_right_or_gap(run: Run, window: tuple[float, float], *, may_miss: bool) -> None:
    """The truth lies in the stated interval, or it is said how much was not seen."""
    found, truth_j = run.energy(window), run.truth_j(window)
    if may_miss and found.coverage < 0.999:
        assert (found.energy_j or 0.0) <= truth_j + found.error_j
        return
    assert found.energy_j is not None
    assert found.coverage == pytest.approx(1.0, abs=1e-3)
    # The library's sensors have no error of gain, which most of a stated interval is for.
    assert abs(found.energy_j - truth_j) <= 1.96 * found.stderr_j + GAIN * truth_j, (found, truth_j)


def assert_total(run: Run, *, may_miss: bool) -> None:
    """The report's total is the truth of the whole run, less what was not seen; so is its peak."""
    total, (device,) = run.report.energy.gpu, run.cards
    truth_j = run.truth_j((0.0, run.report.run.duration_s))
    assert total.energy_j is not None
    unseen_j = (1.0 - total.coverage) * run.report.run.duration_s * LOAD.high_w
    assert total.energy_j <= truth_j + total.error_j
    assert total.energy_j >= truth_j - total.error_j - unseen_j
    assert may_miss or total.coverage > 0.99
    assert device.peak_power_w is not None
    assert device.peak_power_w < 1.2 * LOAD.high_w


def assert_as_without_us(run: Run) -> None:
    """The training has ended by itself, no step is missing in the books, and no hook waited."""
    assert run.report.run.status == "finished"
    assert run.report.throughput.steps == run.steps
    assert_no_hook_waited(run.hooks_s)


@pytest.mark.parametrize(("case", "card"), EVERY_CASE)
def test_fault_of_a_card(
    fake_nvml: Play, tmp_path: Path, case: Case, card: Callable[..., Card]
) -> None:
    """Figures before, across and after a fault are right, or its gap is shown and named."""
    run = trained(tmp_path, clock_of(fake_nvml, card(LOAD), faults=[case.fault]))

    assert_right_or_gap(run, BEFORE, may_miss=False)
    assert_right_or_gap(run, ACROSS, may_miss=case.gap_s > 0.0)
    assert_right_or_gap(run, AFTER, may_miss=case.gap_s > AFTER[0] - FAULT_S)
    assert_total(run, may_miss=case.gap_s > 0.0)
    assert case.says == "" or run.says(case.says), run.report.warnings
    assert_as_without_us(run)


# --- the wall clock


class SetClock(CardClock):
    """The driver stamps its samples by a wall clock that is set; monotonic time goes on."""

    jumps_s = 0.0

    @property
    def _now_s(self) -> float:
        return self._time.monotonic_s() - self.jumps_s

    @_now_s.setter
    def _now_s(self, now_s: float) -> None:
        self._time.advance(max(now_s - self._now_s, 0.0))

    def set_wall_clock(self, jump_s: float) -> None:
        super().set_wall_clock(jump_s)
        self._time.advance(jump_s)
        self.jumps_s += jump_s


@pytest.mark.parametrize("jump_s", [2.0, -2.0])
def test_wall_clock_is_set(fake_nvml: Play, tmp_path: Path, jump_s: float) -> None:
    """Two seconds forward or back: energies are as before, but for a gap of the buffer's length.

    The library plays its signal by the wall clock, so the load repeats in those two seconds and
    the card has no counter, which would jump with it.
    """
    load = Square(low_w=100.0, high_w=600.0, period_s=0.5)
    card = h200(load)
    card = replace(card, sensor=replace(card.sensor, counter_period_s=None))
    clock = SetClock(clock_of(fake_nvml, card)._time)
    run = trained(tmp_path, clock, load, lambda: clock.set_wall_clock(jump_s))

    assert_right_or_gap(run, BEFORE, may_miss=False)
    assert_right_or_gap(run, ACROSS, may_miss=True)
    assert run.energy(ACROSS).coverage > 1.0 - 3.0 / (ACROSS[1] - ACROSS[0])
    assert_right_or_gap(run, AFTER, may_miss=False)
    assert_as_without_us(run)


# --- RAPL


@dataclass(kw_only=True)
class Powercap:
    """One CPU package whose counter file follows the load."""

    root: Path
    range_uj: int = 262_143_328_850
    start_uj: int = 0
    is_readable: bool = True

    def play(self, clock: FakeClock) -> None:
        """Keep the file up to date from now on."""
        zero_s = clock.monotonic_s()
        zone = self.root / "intel-rapl:0"
        zone.mkdir(parents=True)
        (zone / "name").write_text("package-0")
        (zone / "max_energy_range_uj").write_text(str(self.range_uj))

        def write() -> None:
            energy_uj = round(1e6 * LOAD.energy_j(0.0, clock.monotonic_s() - zero_s))
            raw_uj = (self.start_uj + energy_uj) % self.range_uj
            (zone / "energy_uj").write_text(str(raw_uj) if self.is_readable else "")

        write()
        clock.every(0.05, write, "powercap")


def trained_on_rapl(folder: Path, powercap: Powercap, middle: Callable[[FakeClock], object]) -> Run:
    """A training on a CPU that RAPL measures."""
    clock = FakeClock()
    powercap.play(clock)
    source = RaplSource(clock, powercap.root)
    return trained(folder, clock, sources=[source], middle=lambda: middle(clock))


def assert_host_is_right(run: Run) -> None:
    """Every window of the host is fully seen and right."""
    for window in (BEFORE, ACROSS, AFTER):
        found = run.meter.energy(*(moment_s + run.zero_s for moment_s in window), "host")
        assert found.energy_j is not None
        assert found.coverage == pytest.approx(1.0, abs=1e-3)
        assert abs(found.energy_j - LOAD.energy_j(*window)) <= found.error_j
        assert found.energy_j == pytest.approx(LOAD.energy_j(*window), rel=0.01)


def test_rapl_unreadable_for_a_while(tmp_path: Path) -> None:
    """A counter that cannot be read for 15 s has lost nothing when it is back, and that is said."""
    powercap = Powercap(root=tmp_path / "powercap")

    def hide(clock: FakeClock) -> None:
        powercap.is_readable = False
        back_s = clock.monotonic_s() + 15.0

        def show() -> None:
            powercap.is_readable |= clock.monotonic_s() >= back_s

        clock.every(0.5, show, "back")

    run = trained_on_rapl(tmp_path / "run", powercap, hide)
    assert_host_is_right(run)
    assert run.says("RAPL: ReadingMissed")
    assert_as_without_us(run)


def test_rapl_wraps(tmp_path: Path) -> None:
    """A counter that begins anew at its range in the middle has lost nothing."""
    before_uj = round(1e6 * LOAD.energy_j(0.0, FAULT_S))
    powercap = Powercap(root=tmp_path / "powercap")
    powercap.start_uj = powercap.range_uj - before_uj
    run = trained_on_rapl(tmp_path / "run", powercap, lambda _: None)
    assert_host_is_right(run)
    assert_as_without_us(run)


# --- no driver


@pytest.mark.parametrize(
    ("is_installed", "says"), [(True, "is installed, but not loaded"), (False, "no NVIDIA driver")]
)
def test_no_driver_at_the_start(
    fake_nvml: Play, tmp_path: Path, is_installed: bool, says: str
) -> None:
    """Driver not loaded, or no NVML at all: the training goes on, its GPU energy is not known."""
    code = float(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    unloaded = Fault(group="init", kind="error", start_s=0.0, value=code)
    clock = clock_of(fake_nvml, h200(LOAD), faults=[unloaded])
    if not is_installed:
        clock = FakeClock()
        reset_pynvml()
        load_library().fakeNvmlUnload()
    run = trained(tmp_path, clock)

    assert run.report.energy.gpu.energy_j is None
    assert run.says(says)
    assert_as_without_us(run)


# --- CodeCarbon


def break_codecarbon(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no part of CodeCarbon can be imported, and nothing is remembered of it."""
    for name in [*sys.modules, "codecarbon"]:
        if name.partition(".")[0] == "codecarbon":
            monkeypatch.setitem(sys.modules, name, None)
    for function in vars(carbon).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


@pytest.mark.parametrize("begins", ["at the start", "in the middle"])
def test_codecarbon_raises(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    """Without CodeCarbon there are no emissions, which is said; the energy is right."""
    clock = clock_of(fake_nvml, h200(LOAD))
    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path, country="DEU"), clock=clock)
    if begins == "at the start":
        break_codecarbon(monkeypatch)
    zero_s = clock.monotonic_s()
    meter.start(used_gpus=(0,))
    hooks_s = train(meter, clock, zero_s + END_S, lambda: break_codecarbon(monkeypatch))
    meter.stop()
    run = Run(meter=meter, load=LOAD, zero_s=zero_s, hooks_s=hooks_s, report=build(tmp_path))

    for window in (BEFORE, ACROSS, AFTER):
        assert_right_or_gap(run, window, may_miss=False)
    assert run.report.emissions is None
    assert run.says("Emissions could not be found")
    assert_as_without_us(run)


# --- the disk


def journal_of(folder: Path) -> int:
    """The file descriptor of the open journal in a run folder."""
    (path,) = folder.rglob("*.jsonl")
    numbers = (int(link.name) for link in Path("/proc/self/fd").iterdir() if link.exists())
    return next(number for number in numbers if os.path.samestat(os.fstat(number), path.stat()))


@pytest.mark.parametrize("for_s", [15.0, math.inf])
def test_disk_full(
    fake_nvml: Play, tmp_path: Path, for_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be written is lost; figures go on, and the report says what it has not got."""
    clock = clock_of(fake_nvml, h200(LOAD))

    def fill() -> None:
        number = journal_of(tmp_path)
        disk, full = os.dup(number), os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, number)
        os.close(full)
        back_s = clock.monotonic_s() + for_s

        def make_room() -> None:
            if clock.monotonic_s() >= back_s:
                os.dup2(disk, number)

        clock.every(0.5, make_room, "room")

    run = trained(tmp_path, clock, middle=fill)
    for window in (BEFORE, ACROSS, AFTER):
        assert_right_or_gap(run, window, may_miss=False)
    assert caplog.text.count("cannot be written") == 1
    assert_no_hook_waited(run.hooks_s)
    if math.isfinite(for_s):
        assert_total(run, may_miss=False)
        assert run.says("lines of the journal could not be written")
    else:
        found, duration_s = run.report.energy.gpu, run.report.run.duration_s
        assert run.says("was cut off")
        assert duration_s == pytest.approx(FAULT_S, abs=2.0)
        assert found.energy_j is not None
        assert abs(found.energy_j - run.truth_j((0.0, duration_s))) <= found.error_j + LOAD.high_w


def test_report_folder_deleted(
    fake_nvml: Play, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody tidies up: figures go on to the end, and one warning says that no report is left."""
    clock = clock_of(fake_nvml, h200(LOAD))
    folder = tmp_path / "run"
    meter = EnergyMeter(config=EnergyConfig(report_dir=folder), clock=clock).start()
    zero_s = clock.monotonic_s()
    hooks_s = train(meter, clock, zero_s + END_S, lambda: shutil.rmtree(folder))
    meter.stop()

    assert meter.save_report() is None
    assert caplog.text.count("no energy report in") == 1
    assert_no_hook_waited(hooks_s)
    for start_s, end_s in (BEFORE, ACROSS, AFTER):
        found = meter.energy(start_s + zero_s, end_s + zero_s, "gpu")
        assert found.energy_j == pytest.approx(LOAD.energy_j(start_s, end_s), rel=0.05)
    assert meter.totals()
