"""Faults of sensors in files that begin in the middle of a real training, in virtual time.

The training ends as without us, and the report shows each gap. What the reader does in each case is
tested for every family in ``tests/sensing/sources/conformance``.
"""

import errno
import math
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("lightning")

from energy_callbacks.testing import FakeClock
from tests import faults
from tests.faults import ACROSS, AFTER, BEFORE, LOAD
from tests.integrations.contract.faults import PLAN, FaultyTraining, _assert_all_counted
from tests.integrations.contract.faults import _assert_same as assert_same
from tests.integrations.contract.lab import Bench, Training
from tests.integrations.lightning.lab import LightningLab
from tests.sensing.sources.conformance import acme
from tests.sensing.sources.conformance.case import Lab
from tests.sensing.sources.trees.faults import FAULTS, end

COUNTER, POWER = "acme chisel", "acme hammer"
FAULT_FOR_S = 15.0


@dataclass(frozen=True, kw_only=True)
class Injected:
    """A fault, and what the report must show of it.

    Attributes:
        fault: name of the fault.
        device: the device: with a counter only, or with power only.
        may_miss: whether there is a gap.
        says: words of the report that name the fault.
    """

    fault: str
    device: str
    may_miss: bool
    says: str

    def __str__(self) -> str:
        return f"{self.fault}, {self.device}"


INJECTED = (
    Injected(fault="reset", device=COUNTER, may_miss=True, says="the energy counter was reset"),
    # What a counter has counted meanwhile is known afterwards.
    Injected(fault="N/A", device=COUNTER, may_miss=False, says="readings failed"),
    Injected(fault="all ones", device=COUNTER, may_miss=False, says="readings failed"),
    Injected(fault="stopped", device=COUNTER, may_miss=True, says="has stopped"),
    Injected(fault="unplugged", device=COUNTER, may_miss=True, says="is gone"),
    Injected(fault="N/A", device=POWER, may_miss=True, says="readings failed"),
    Injected(fault="unplugged", device=POWER, may_miss=True, says="is gone"),
)


class SensorFiles:
    """A training beside one or two made-up GPUs whose sensors are files."""

    def __init__(self, bench: Bench, device: str, *, count: int = 1, start_j: float = 0.0) -> None:
        (case,) = (case for case in acme.CASES if case.name == device)
        self.files = Lab(case, bench.folder / "machine", *[LOAD] * count, start_j=start_j)
        clock: FakeClock = self.files.clock
        self.files.running.start(0.05)
        self.training = FaultyTraining(bench, clock, sources=self.files.sources)

    def begin(self, fault: str) -> None:
        """Begin a fault of the first GPU, and end it after 15 s."""
        running, device = self.files.running, self.files.live[0]
        end_s = running.now_s + FAULT_FOR_S
        FAULTS[fault](running, device)

        def check() -> float | None:
            if running.now_s < end_s:
                return None
            end(running, device)
            return math.inf

        if fault != "reset":
            self.files.clock.every(0.5, check, "end of the fault")


@pytest.fixture(scope="module")
def without_us(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """Return the same training without our callback."""
    return Bench(LightningLab(), tmp_path_factory.mktemp("without_us")).without_us(PLAN)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return the lab of Lightning in an empty folder."""
    return Bench(LightningLab(), tmp_path)


@pytest.mark.parametrize("injected", INJECTED, ids=str)
def test_a_fault_changes_no_step_and_is_reported(
    injected: Injected, bench: Bench, without_us: Training
) -> None:
    """Losses and weights are identical, and the energy is right or the report shows a gap."""
    machine = SensorFiles(bench, injected.device)
    assert_same(machine.training.fit(lambda: machine.begin(injected.fault)), without_us)
    run = machine.training.run()
    _assert_all_counted(run)
    faults.assert_right_or_gap(run, BEFORE, may_miss=False)
    faults.assert_right_or_gap(run, ACROSS, may_miss=injected.may_miss)
    faults.assert_right_or_gap(run, AFTER, may_miss=False)
    assert (run.energy(ACROSS).coverage < 0.999) is injected.may_miss
    assert (run.report.energy.gpu.coverage < 0.999) is injected.may_miss
    assert run.says(injected.says), run.report.warnings


def test_a_wrap_loses_nothing(bench: Bench, without_us: Training) -> None:
    """A counter that wraps during the training is right, and the report says so."""
    before_j = LOAD.energy_j(0.0, 30.0)
    machine = SensorFiles(bench, COUNTER, start_j=acme.WRAP * 1e-6 - before_j)
    assert_same(machine.training.fit(), without_us)
    run = machine.training.run()
    _assert_all_counted(run)
    for window in (BEFORE, ACROSS, AFTER):
        faults.assert_right_or_gap(run, window, may_miss=False)
    assert run.says("restarted at the end of its range 1 time")


def test_one_of_two_cards_may_go_away(bench: Bench, without_us: Training) -> None:
    """The other GPU is measured as before."""
    machine = SensorFiles(bench, COUNTER, count=2)
    assert_same(machine.training.fit(lambda: machine.begin("unplugged")), without_us)
    run = machine.training.run()
    other = run.energy(ACROSS, machine.files.found[1].device.key)
    assert other.coverage > 0.999
    assert other.energy_j == pytest.approx(run.truth_j(ACROSS), rel=0.01)
    assert run.energy(ACROSS, machine.files.found[0].device.key).coverage < 0.99
    assert run.says("is gone")


@pytest.mark.parametrize("why", ["missing", "forbidden"])
def test_no_files_at_the_start(
    why: str, bench: Bench, without_us: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without files, or without permission, the report says what is missing and what to do."""
    machine = SensorFiles(bench, COUNTER)
    path = machine.files.metering_paths()[0]
    machine.files.running.stop()
    if why == "missing":
        machine.files.running.tree.remove(path)
    else:
        _forbid(monkeypatch, machine.files.running.tree.root / path)
    assert_same(machine.training.fit(), without_us)
    run = machine.training.run()
    _assert_all_counted(run)
    assert run.report.energy.gpu.energy_j is None
    sensors = " ".join(str(entry) for entry in run.report.unavailable)
    family = acme.FAMILY
    if why == "missing":
        assert "reports neither power nor energy" in sensors
        assert family.absence_fix in sensors
    else:
        assert "permission denied" in sensors
        assert family.permission_fix in sensors


def _forbid(monkeypatch: pytest.MonkeyPatch, forbidden: Path) -> None:
    """Make a file unreadable, also for root."""
    really_open = os.open

    def guarded(path, *args, **kwargs):  # type: ignore[no-untyped-def]
        if str(path) == str(forbidden):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return really_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", guarded)
