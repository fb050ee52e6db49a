"""Faults of sensors in files that begin in the middle of a real training, in virtual time.

The training ends as without us, and the report shows each gap. What the reader does in each case is
tested for every family in ``tests/sensing/sources/conformance``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("lightning")

from tests import faults
from tests.fake_nvml.signals import Signal
from tests.faults import ACROSS, AFTER, BEFORE, LOAD
from tests.integrations.contract.faults import PLAN, FaultyTraining, _assert_all_counted
from tests.integrations.contract.faults import _assert_same as assert_same
from tests.integrations.contract.lab import Bench, Training
from tests.integrations.lightning.lab import LightningLab
from tests.sensing.sources.conformance import acme

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
    """A training beside made-up GPUs whose sensors are files."""

    def __init__(
        self, bench: Bench, patch: pytest.MonkeyPatch, device: str, *signals: Signal, start_j: float
    ) -> None:
        (case,) = (case for case in acme.CASES if case.name == device)
        self.files = case.lab(bench.folder / "machine", patch, signals or (LOAD,), start_j)
        self.training = FaultyTraining(bench, self.files.clock, sources=self.files.sources)

    def begin(self, fault: str) -> None:
        """Begin a fault of the first GPU, and end it after 15 s."""
        end_s = self.files.running.now_s + FAULT_FOR_S
        self.files.begin(fault)

        def check() -> float | None:
            if self.files.running.now_s < end_s:
                return None
            self.files.end(fault)
            return math.inf

        if fault != "reset":
            self.files.clock.every(0.5, check, "end of the fault")


Make = Callable[..., SensorFiles]


@pytest.fixture
def machine(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a function that makes a training beside GPUs."""

    def make(device: str, *signals: Signal, start_j: float = 0.0) -> SensorFiles:
        return SensorFiles(bench, monkeypatch, device, *signals, start_j=start_j)

    return make


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
    injected: Injected, machine: Make, without_us: Training
) -> None:
    """Losses and weights are identical, and the energy is right or the report shows a gap."""
    gpu = machine(injected.device)
    gpu.files.start()
    assert_same(gpu.training.fit(lambda: gpu.begin(injected.fault)), without_us)
    run = gpu.training.run()
    _assert_all_counted(run)
    faults.assert_right_or_gap(run, BEFORE, may_miss=False)
    faults.assert_right_or_gap(run, ACROSS, may_miss=injected.may_miss)
    faults.assert_right_or_gap(run, AFTER, may_miss=False)
    assert (run.energy(ACROSS).coverage < 0.999) is injected.may_miss
    assert (run.report.energy.gpu.coverage < 0.999) is injected.may_miss
    assert run.says(injected.says), run.report.warnings


def test_a_wrap_loses_nothing(machine: Make, without_us: Training) -> None:
    """A counter that wraps during the training is right, and the report says so."""
    before_j = LOAD.energy_j(0.0, 30.0)
    gpu = machine(COUNTER, start_j=acme.WRAP * 1e-6 - before_j)
    gpu.files.start()
    assert_same(gpu.training.fit(), without_us)
    run = gpu.training.run()
    _assert_all_counted(run)
    for window in (BEFORE, ACROSS, AFTER):
        faults.assert_right_or_gap(run, window, may_miss=False)
    assert run.says("restarted at the end of its range 1 time")


def test_one_of_two_cards_may_go_away(machine: Make, without_us: Training) -> None:
    """The other GPU is measured as before."""
    gpus = machine(COUNTER, LOAD, LOAD)
    gpus.files.start()
    assert_same(gpus.training.fit(lambda: gpus.begin("unplugged")), without_us)
    run = gpus.training.run()
    first, second = gpus.files.keys
    other = run.energy(ACROSS, second)
    assert other.coverage > 0.999
    assert other.energy_j == pytest.approx(run.truth_j(ACROSS), rel=0.01)
    assert run.energy(ACROSS, first).coverage < 0.99
    assert run.says("is gone")


@pytest.mark.parametrize(
    ("fault", "says"),
    [("missing", "reports neither power nor energy"), ("permission", "permission denied")],
)
def test_no_files_at_the_start(fault: str, says: str, machine: Make, without_us: Training) -> None:
    """Without files, or without permission, the report says what is missing and what to do."""
    gpu = machine(COUNTER)
    gpu.files.begin(fault)
    assert_same(gpu.training.fit(), without_us)
    run = gpu.training.run()
    _assert_all_counted(run)
    assert run.report.energy.gpu.energy_j is None
    sensors = " ".join(str(entry) for entry in run.report.unavailable)
    assert says in sensors
    assert gpu.files.case.fixes[fault] in sensors
