"""The contract: faults of ``tests/faults.py`` that begin in the middle of a real training.

The training takes 91 s of virtual time, as long as the plain loop of ``tests/test_faults.py``. It
must end normally, its rows and weights must be bit-identical to those of the training without our
callback, and the report must name the fault.
"""

import math
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.records import Reading
from energy_callbacks.sensing.clock import Latch, SystemClock
from energy_callbacks.sensing.sources.rapl import RaplSource
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests import faults
from tests.fake_nvml import Signal, h200
from tests.faults import ACROSS, AFTER, BEFORE, CASES, FAULT_S, LOAD, Play, Powercap
from tests.integrations.contract.lab import BATCH_SIZE, POWER_W, Bench, Plan, Training

# One fault of each kind. The effects of the other faults on the meter do not depend on the
# framework; ``tests/test_faults.py`` tests them.
KINDS = (
    "nothing supported for a while",
    "card lost",
    "call hangs 30 s",
    "counter reset to 0",
    "counter a megajoule ahead",
    "power spike of 10 MW",
)
BATCH_S = 3.0
# Longest time for which a call hangs. A batch that takes half of this time must have waited for the
# call, because even on a busy machine no batch takes that long.
HANG_S = 120.0
PLAN = Plan(samples=15 * BATCH_SIZE, validation_samples=20, step_s=0.1)


class FaultyTraining:
    """A training with our callback in which a fault begins after 30 s.

    Args:
        bench: the framework and the folder of the test.
        clock: the virtual clock, possibly that of a fake card.
        load: power of the measured device over time.
        meter: additional arguments of the ``EnergyMeter``.
    """

    def __init__(self, bench: Bench, clock: FakeClock, load: Signal = LOAD, **meter: Any) -> None:
        self.clock = clock
        self._load = load
        self._zero_s = clock.monotonic_s()
        config = EnergyConfig(country="DEU", report_dir=bench.folder / "energy", devices="all")
        self.folder = config.report_dir
        self.ours = bench.lab.callback(meter=EnergyMeter(config=config, clock=clock, **meter))
        self._bench = Bench(bench.lab, bench.folder, clock)

    def fit(self, middle: Callable[[], object] = lambda: None) -> Training:
        """Train to the end, and call ``middle`` once when the fault must begin."""
        due = [middle]

        def before_batch(batch: int) -> None:
            for _ in range(2):
                self.clock.advance((BATCH_S - PLAN.step_s) / 2)
                if due and self.clock.monotonic_s() - self._zero_s > FAULT_S:
                    due.pop()()

        return self._bench.fit(replace(PLAN, before_batch=before_batch), self.ours)

    def run(self) -> faults.Run:
        """Return the training in the form that the assertions of ``tests/faults.py`` take."""
        ours = self.ours
        return faults.Run(
            meter=ours._meter, load=self._load, zero_s=self._zero_s, report=ours.report()
        )


class HangingSource(ScriptedSource):
    """A sensor whose reads block while ``hangs`` is true, until ``let_go`` is set."""

    hangs = False

    def __init__(self, clock: Any) -> None:
        super().__init__(clock, power_w=lambda t_s: POWER_W, interval_s=0.02)
        self.let_go = threading.Event()

    def read(self) -> list[Reading]:
        """See ``ScriptedSource``."""
        if self.hangs:
            self.let_go.wait(HANG_S)
        return list(super().read())


class FaultsContract:
    """Faults of cards, drivers, clocks, counters and disks in the middle of a training."""

    @pytest.fixture(autouse=True)
    def _every_card(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    @pytest.fixture
    def without_us(self, bench: Bench) -> Training:
        """Return the same training without our callback."""
        return bench.without_us(PLAN)

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_faulty_gpu_changes_no_step_and_is_reported(
        self, bench: Bench, fake_nvml: Play, without_us: Training, kind: str
    ) -> None:
        """On errors, hangs, resets and spikes, rows do not change; energy is right or a gap."""
        [case] = (case for case in CASES if case.name == kind)
        clock = faults.clock_of(fake_nvml, h200(LOAD), faults=[case.fault])
        faulty = FaultyTraining(bench, clock)
        _assert_same(faulty.fit(), without_us)
        run = faulty.run()
        faults.assert_case(run, case)
        _assert_all_counted(run)

    def test_a_driver_that_hangs_delays_no_batch(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In real time, all batches finish while a call hangs; the report names the source."""
        source = HangingSource(SystemClock())
        began_s: list[float] = []
        waits_s: list[tuple[bool, float]] = []
        wait = Latch.wait

        def noted(latch: Latch, timeout_s: float) -> bool:
            waits_s.append((threading.current_thread() is threading.main_thread(), timeout_s))
            return wait(latch, timeout_s)

        def before_batch(batch: int) -> None:
            time.sleep(0.02)
            source.hangs = batch >= 10
            began_s.append(time.monotonic())

        ours = bench.lab.callback(meter=EnergyMeter(sources=[source]))
        try:
            training = bench.training(Plan(before_batch=before_batch), ours)
            with monkeypatch.context() as patch:
                patch.setattr(Latch, "wait", noted)
                training.fit()
            ended_s = time.monotonic()
            report = ours.report()
        finally:
            source.let_go.set()
        _assert_same(training, bench.without_us(Plan()))
        assert max(after - before for before, after in pairwise(began_s)) < HANG_S / 2
        assert ended_s - began_s[-1] < HANG_S / 2
        own_waits_s = [wait_s for is_own, wait_s in tuple(waits_s) if is_own]
        assert 0.0 < max(own_waits_s) < 1.0, "the driver is waited for on another thread"
        assert report.run.status == "finished"
        assert report.throughput.steps == 20
        assert _says(report, "scripted did not respond")

    @pytest.mark.parametrize("jump_s", [2.0, -2.0])
    def test_the_wall_clock_may_be_set(
        self, bench: Bench, fake_nvml: Play, without_us: Training, jump_s: float
    ) -> None:
        """After a jump by 2 s or -2 s, no energy is counted twice, and a gap is 2 s at most."""
        clock, load = faults.clock_to_set(fake_nvml)
        faulty = FaultyTraining(bench, clock, load)
        _assert_same(faulty.fit(lambda: clock.set_wall_clock(jump_s)), without_us)
        run = faulty.run()
        faults.assert_clock_was_set(run, jump_s)
        _assert_all_counted(run)

    def test_rapl_may_be_unreadable_for_a_while(self, bench: Bench, without_us: Training) -> None:
        """Readings fail for 15 s: no energy is lost, and the report states the failure."""
        clock, powercap = FakeClock(), Powercap(root=bench.folder / "powercap")
        powercap.play(clock)
        faulty = FaultyTraining(bench, clock, sources=[RaplSource(clock, powercap.root)])
        _assert_same(faulty.fit(lambda: powercap.hide(clock, 15.0)), without_us)
        run = faulty.run()
        faults.assert_host_is_right(run)
        assert run.says("readings failed (ReadingMissed")
        _assert_all_counted(run)

    def test_rapl_may_wrap(self, bench: Bench, without_us: Training) -> None:
        """The counter restarts at the end of its range, as it does hourly; no energy is lost."""
        clock, powercap = FakeClock(), Powercap(root=bench.folder / "powercap")
        powercap.wrap()
        powercap.play(clock)
        faulty = FaultyTraining(bench, clock, sources=[RaplSource(clock, powercap.root)])
        _assert_same(faulty.fit(), without_us)
        run = faulty.run()
        faults.assert_host_is_right(run)
        assert run.says("restarted at the end of its range")
        _assert_all_counted(run)

    @pytest.mark.parametrize(
        ("is_installed", "says"),
        [(True, "is installed, but not loaded"), (False, "no NVIDIA driver")],
        ids=["driver not loaded", "no NVML"],
    )
    def test_no_driver_at_the_start(
        self, bench: Bench, fake_nvml: Play, without_us: Training, is_installed: bool, says: str
    ) -> None:
        """Driver not loaded or not installed: GPU energy is unknown, and the report says why."""
        faulty = FaultyTraining(bench, faults.without_driver(fake_nvml, is_installed=is_installed))
        _assert_same(faulty.fit(), without_us)
        run = faulty.run()
        assert run.report.energy.gpu.energy_j is None
        assert run.says(says)
        _assert_all_counted(run)

    @pytest.mark.parametrize("begins", ["at the start", "in the middle"])
    def test_codecarbon_may_raise(
        self,
        bench: Bench,
        fake_nvml: Play,
        without_us: Training,
        monkeypatch: pytest.MonkeyPatch,
        begins: str,
    ) -> None:
        """At the start: emissions are a range, with the reason. Later, it does not matter."""
        faulty = FaultyTraining(bench, faults.clock_of(fake_nvml, h200(LOAD)))
        if begins == "at the start":
            faults.break_codecarbon(monkeypatch)
        _assert_same(faulty.fit(lambda: faults.break_codecarbon(monkeypatch)), without_us)
        run = faulty.run()
        for window in (BEFORE, ACROSS, AFTER):
            faults.assert_right_or_gap(run, window, may_miss=False)
        faults.assert_emissions(run, are_known=begins == "in the middle")
        _assert_all_counted(run)

    @pytest.mark.parametrize("for_s", [15.0, math.inf], ids=["for a while", "to the end"])
    def test_the_disk_may_be_full(
        self, bench: Bench, fake_nvml: Play, without_us: Training, for_s: float
    ) -> None:
        """Unwritten data is lost, figures continue, and the report states what is missing."""
        clock = faults.clock_of(fake_nvml, h200(LOAD))
        faulty = FaultyTraining(bench, clock)
        fill = lambda: faults.fill_disk(faulty.folder, clock, for_s)  # noqa: E731
        _assert_same(faulty.fit(fill), without_us)
        run = faulty.run()
        for window in (BEFORE, ACROSS, AFTER):
            faults.assert_right_or_gap(run, window, may_miss=False)
        faults.assert_disk_was_full(run, for_s)

    def test_the_report_folder_may_be_deleted(
        self,
        bench: Bench,
        fake_nvml: Play,
        without_us: Training,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Figures continue to the end, and one warning says that there is no report."""
        faulty = FaultyTraining(bench, faults.clock_of(fake_nvml, h200(LOAD)))
        training = faulty.fit(lambda: shutil.rmtree(faulty.folder))
        _assert_same(training, without_us)
        assert caplog.text.count("no energy report in") == 1
        last_j = training.rows()["energy/gpu_wh"][-1][1] * 3600.0
        assert last_j == pytest.approx(LOAD.energy_j(0.0, faulty.clock.monotonic_s()), rel=0.05)


def _assert_same(training: Training, without_us: Training) -> None:
    """Assert that rows and weights are bit-identical to those without our callback."""
    found, wanted = training.rows(), without_us.rows()
    assert wanted
    assert {tag: found[tag] for tag in wanted} == wanted
    assert training.weights() == without_us.weights()


def _assert_all_counted(run: faults.Run) -> None:
    """Assert that the run finished and that all steps were counted."""
    assert run.report.run.status == "finished"
    assert run.report.throughput.steps == PLAN.batches


def _says(report: Any, words: str) -> bool:
    return any(words in warning.message for warning in report.warnings)
