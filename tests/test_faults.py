"""Each fault that a sensor, a driver or a disk can have, begun in the middle of a training.

The training is a plain loop of 90 s on virtual time, so that the truth is known; what needs real
time is in ``tests/integrations/lightning/test_faults.py``. Fault by fault: the training ends as
without us, no hook waits, and each figure is right within its stated interval or shows a gap.
"""

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.profiling.lines.stack_sampler import ContextSwitches
from energy_callbacks.report import build
from energy_callbacks.sensing.sources.rapl import RaplSource
from energy_callbacks.testing import FakeClock
from tests import faults
from tests.fake_nvml import Card, Fault, Signal, fixtures
from tests.faults import (
    ACROSS,
    AFTER,
    BEFORE,
    CASES,
    END_S,
    FAULT_S,
    LOAD,
    Case,
    Play,
    Powercap,
    assert_case,
    assert_clock_was_set,
    assert_disk_was_full,
    assert_emissions,
    assert_host_is_right,
    assert_right_or_gap,
    assert_total,
    break_codecarbon,
    clock_of,
    clock_to_set,
    fill_disk,
    h200,
    without_driver,
)

fake_nvml = fixtures.fake_nvml
LONGEST_HOOK_S = 0.005
STEP_S = 0.5

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
class Run(faults.Run):
    """A plain loop that has ended, and the duration of each of our hooks in it."""

    hooks_s: list[tuple[float, float]]

    @property
    def steps(self) -> int:
        """Return the number of steps: two hooks per step, and two for the phase."""
        return (len(self.hooks_s) - 2) // 2


def trained(
    folder: Path,
    clock: FakeClock,
    load: Signal = LOAD,
    middle: Callable[[], object] | None = None,
    **meter: Any,
) -> Run:
    """Train for 90 s; call a function in the middle."""
    zero_s = clock.monotonic_s()
    config = EnergyConfig(report_dir=folder, country="DEU")
    running = EnergyMeter(config=config, clock=clock, **meter)._start(used_gpus=(0,))
    hooks_s = train(running, clock, zero_s + END_S, middle)
    running.stop()
    report = build(folder)
    return Run(meter=running, load=load, zero_s=zero_s, hooks_s=hooks_s, report=report)


def train(
    meter: EnergyMeter, clock: FakeClock, end_s: float, middle: Callable[[], object] | None = None
) -> list[tuple[float, float]]:
    """Run a user's loop; measure each hook's wall time and processor time.

    The wall time of a hook that never sleeps is its processor time: the rest of the time, another
    process had the processor.
    """
    hooks_s, sleeps = [], ContextSwitches()

    def hook(call: Callable[[], object]) -> None:
        sleeps.since_last()
        before_s, cpu_before_s = time.perf_counter(), time.thread_time()
        call()
        cpu_s = time.thread_time() - cpu_before_s
        wall_s = time.perf_counter() - before_s
        hooks_s.append((cpu_s if sleeps.since_last() == 0 else wall_s, cpu_s))

    hook(lambda: meter.enter("train"))
    while clock.monotonic_s() < end_s:
        clock.advance(STEP_S)
        hook(lambda: meter.step(samples=8))
        hook(meter.scalars)
        if middle is not None and clock.monotonic_s() > end_s - END_S + FAULT_S:
            middle, _ = None, middle()
    hook(lambda: meter.leave("train"))
    return hooks_s


def assert_no_hook_waited(hooks_s: Sequence[tuple[float, float]]) -> None:
    """No hook uses 5 ms of processor time; three of four take less than that in wall time."""
    wall_s, cpu_s = (sorted(column) for column in zip(*hooks_s, strict=True))
    assert cpu_s[int(0.99 * len(cpu_s)) - 1] < LONGEST_HOOK_S
    assert wall_s[len(wall_s) // 2] < LONGEST_HOOK_S
    assert wall_s[-1] < 1.0


def assert_as_without_us(run: Run) -> None:
    """The training ends by itself, all steps are counted, and no hook waits."""
    assert run.report.run.status == "finished"
    assert run.report.throughput.steps == run.steps
    assert_no_hook_waited(run.hooks_s)


@pytest.mark.parametrize(("case", "card"), EVERY_CASE)
def test_fault_of_a_card(
    fake_nvml: Play, tmp_path: Path, case: Case, card: Callable[..., Card]
) -> None:
    """Figures before, across and after a fault are right, or its gap is shown and named."""
    run = trained(tmp_path, clock_of(fake_nvml, card(LOAD), faults=[case.fault]))

    assert_case(run, case)
    assert_as_without_us(run)


# --- the wall clock


@pytest.mark.parametrize("jump_s", [2.0, -2.0])
def test_wall_clock_is_set(fake_nvml: Play, tmp_path: Path, jump_s: float) -> None:
    """Two seconds forward or back: energies are as before, but for a gap of the buffer's length."""
    clock, load = clock_to_set(fake_nvml)
    run = trained(tmp_path, clock, load, lambda: clock.set_wall_clock(jump_s))
    assert_clock_was_set(run, jump_s)
    assert_as_without_us(run)


# --- RAPL


def trained_on_rapl(folder: Path, powercap: Powercap, middle: Callable[[FakeClock], object]) -> Run:
    """Train on a CPU that RAPL measures."""
    clock = FakeClock()
    powercap.play(clock)
    source = RaplSource(clock, powercap.root)
    return trained(folder, clock, sources=[source], middle=lambda: middle(clock))


def test_rapl_unreadable_for_a_while(tmp_path: Path) -> None:
    """After 15 s without readings the counter has lost nothing, and the report says so."""
    powercap = Powercap(root=tmp_path / "powercap")
    run = trained_on_rapl(tmp_path / "run", powercap, lambda clock: powercap.hide(clock, 15.0))
    assert_host_is_right(run)
    assert run.says("readings failed (ReadingMissed")
    assert_as_without_us(run)


def test_rapl_wraps(tmp_path: Path) -> None:
    """A counter that wraps around during the training loses nothing."""
    powercap = Powercap(root=tmp_path / "powercap")
    powercap.wrap()
    run = trained_on_rapl(tmp_path / "run", powercap, lambda _: None)
    assert_host_is_right(run)
    assert run.says("restarted at the end of its range 1 time;")
    assert_as_without_us(run)


# --- no driver


@pytest.mark.parametrize(
    ("is_installed", "says"), [(True, "is installed, but not loaded"), (False, "no NVIDIA driver")]
)
def test_no_driver_at_the_start(
    fake_nvml: Play, tmp_path: Path, is_installed: bool, says: str
) -> None:
    """No driver or no NVML: the training runs, its GPU energy is unknown."""
    clock = without_driver(fake_nvml, is_installed=is_installed)
    run = trained(tmp_path, clock)

    assert run.report.energy.gpu.energy_j is None
    assert run.says(says)
    assert_as_without_us(run)


def test_slow_start_of_nvml(fake_nvml: Play, tmp_path: Path) -> None:
    """NVML takes 3 s to initialise: ``start`` does not wait, and these seconds are a gap."""
    carbon.intensity(carbon.place())  # the import of CodeCarbon initialises NVML, too
    slow = Fault(group="init", kind="hang", start_s=0.0, value=3.0)
    clock = clock_of(fake_nvml, h200(LOAD), faults=[slow])
    zero_s = clock.monotonic_s()
    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), clock=clock)
    meter._start(used_gpus=(0,))
    started_s = clock.monotonic_s()
    hooks_s = train(meter, clock, zero_s + END_S)
    meter.stop()
    run = Run(meter=meter, load=LOAD, zero_s=zero_s, hooks_s=hooks_s, report=build(tmp_path))

    assert started_s == zero_s
    assert run.energy((0.0, 10.0)).coverage == pytest.approx(0.7, abs=0.25)
    assert_right_or_gap(run, (3.5, 10.0), may_miss=False)
    assert_total(run, may_miss=True)
    assert run.cards[0].mean_power_w == pytest.approx(350.0, rel=0.1)
    assert_as_without_us(run)


# --- CodeCarbon


@pytest.mark.parametrize("begins", ["at the start", "in the middle"])
def test_codecarbon_raises(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    """Emissions are a range if CodeCarbon fails at the start; the energy is right.

    After the start, the carbon intensity is in the journal, and CodeCarbon is not needed.
    """
    clock = clock_of(fake_nvml, h200(LOAD))
    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path, country="DEU"), clock=clock)
    if begins == "at the start":
        break_codecarbon(monkeypatch)
    zero_s = clock.monotonic_s()
    meter._start(used_gpus=(0,))
    hooks_s = train(meter, clock, zero_s + END_S, lambda: break_codecarbon(monkeypatch))
    meter.stop()
    run = Run(meter=meter, load=LOAD, zero_s=zero_s, hooks_s=hooks_s, report=build(tmp_path))

    for window in (BEFORE, ACROSS, AFTER):
        assert_right_or_gap(run, window, may_miss=False)
    assert_emissions(run, are_known=begins == "in the middle")
    assert_as_without_us(run)


# --- the disk


@pytest.mark.parametrize("for_s", [15.0, math.inf])
def test_disk_full(
    fake_nvml: Play, tmp_path: Path, for_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines wait until there is space; figures go on, and the report states what is missing."""
    clock = clock_of(fake_nvml, h200(LOAD))

    run = trained(tmp_path, clock, middle=lambda: fill_disk(tmp_path, clock, for_s))
    for window in (BEFORE, ACROSS, AFTER):
        assert_right_or_gap(run, window, may_miss=False)
    assert caplog.text.count("cannot be written") == 1
    assert_no_hook_waited(run.hooks_s)
    assert_disk_was_full(run, for_s)


def test_report_folder_deleted(
    fake_nvml: Play, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The run folder is deleted: figures go on, and one warning says that there is no report."""
    clock = clock_of(fake_nvml, h200(LOAD))
    folder = tmp_path / "run"
    meter = EnergyMeter(config=EnergyConfig(report_dir=folder), clock=clock)._start(used_gpus=(0,))
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
