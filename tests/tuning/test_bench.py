"""Trials of a batch size on a training with known time and power."""

from pathlib import Path

import pytest

from energy_callbacks.core.records import Energy
from energy_callbacks.tuning.bench import Bench, Patience
from tests.tuning.simulated import Training


def test_throughput_is_that_of_settled_steps(tmp_path: Path) -> None:
    """The first steps are ten times slower; the result is exact within 0.1 %."""
    training = Training(tmp_path)
    with training.meter:
        trial = Bench(training.step, training.meter).run(64)
    assert trial.samples_per_s == pytest.approx(64 / (0.02 + 0.064), rel=1e-3)
    assert trial.time_error < 1e-3


def test_energy_is_that_of_the_measured_steps(tmp_path: Path) -> None:
    """The card draws 400 W during all measured steps."""
    training = Training(tmp_path)
    with training.meter:
        trial = Bench(training.step, training.meter).run(64)
    assert trial.scope == "gpu"
    assert trial.power_w == pytest.approx(400.0, rel=0.03)
    assert abs(trial.energy.energy_j - 400.0 * trial.duration_s) <= trial.energy.error_j + 1e-6
    assert trial.j_per_sample == pytest.approx(400.0 * 0.084 / 64, rel=0.03)


@pytest.mark.parametrize(("coverage", "is_known"), [(0.7, True), (0.4, False)])
def test_energy_of_a_trial_that_was_seen_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coverage: float, is_known: bool
) -> None:
    """Energy is extrapolated to the missed time, and the error includes it."""
    training = Training(tmp_path)

    def energy(start_s: float, end_s: float, scope: str = "total") -> Energy:
        seen_j = 400.0 * coverage * (end_s - start_s)
        return Energy(energy_j=seen_j if scope == "gpu" else None, coverage=coverage)

    monkeypatch.setattr(training.meter, "energy", energy)
    with training.meter:
        trial = Bench(training.step, training.meter).run(64)
    if not is_known:
        assert trial.j_per_sample is None
        return
    assert trial.power_w == pytest.approx(400.0)
    assert trial.energy.systematic_j == pytest.approx(0.3 * 400.0 * trial.duration_s)


def test_a_trial_is_as_long_as_was_asked(tmp_path: Path) -> None:
    """At least two seconds in at least four blocks, and no longer than needed."""
    training = Training(tmp_path)
    with training.meter:
        bench = Bench(training.step, training.meter, patience=Patience(least_s=2.0))
        quick, slow = bench.run(8), bench.run(900)
    assert 2.0 <= quick.duration_s < 2.5
    assert slow.steps == 4
    assert slow.cost_s > slow.duration_s


def test_a_call_may_run_several_steps(tmp_path: Path) -> None:
    """Five steps per call process five times as many samples in the same time."""
    training = Training(tmp_path)
    with training.meter:
        trial = Bench(training.step, training.meter, steps_per_call=5).run(64)
    assert trial.steps % 5 == 0
    assert trial.samples_per_s == pytest.approx(5 * 64 / (0.02 + 0.064), rel=1e-3)


def test_what_does_not_fit_is_a_finding(tmp_path: Path) -> None:
    """The trial has status and reason, and the training is restored."""
    training = Training(tmp_path, most=100)
    restored = []
    with training.meter:
        bench = Bench(training.step, training.meter, lambda: restored.append(True))
        trial = bench.run(101)
    assert (trial.status, trial.steps, trial.samples_per_s) == ("out_of_memory", 0, None)
    assert trial.reason == "MemoryError: 101 samples do not fit"
    assert restored == [True]


def test_any_other_failure_passes_through(tmp_path: Path) -> None:
    """The error propagates after the training is restored."""
    training = Training(tmp_path)
    restored = []

    def broken(size: int) -> None:
        raise ZeroDivisionError(size)

    with training.meter, pytest.raises(ZeroDivisionError):
        Bench(broken, training.meter, lambda: restored.append(True)).run(4)
    assert restored == [True]


def test_noise_makes_a_trial_longer(tmp_path: Path) -> None:
    """Steps that vary by a third are measured until the mean is known to 1 %, or for 10 s."""
    training = Training(tmp_path, slow_steps=0)
    noisy_s = iter([0.2, 0.1] * 10_000)

    def step(size: int) -> None:
        training.sample_s = next(noisy_s) / size
        training.step(size)

    with training.meter:
        bench = Bench(step, training.meter, patience=Patience(block_s=0.05, most_s=8.0))
        trial = bench.run(10)
    assert 2.5 < trial.duration_s < 8.5
    assert 0.0 < trial.time_error < 0.05
    assert trial.energy_error >= trial.time_error


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"most_s": 1.0}, "most_s=1.0 is less than least_s=2.0"),
        ({"error": 0.0}, "error must be a positive number, got 0.0"),
        ({"block_s": float("nan")}, "block_s must be a positive number"),
    ],
)
def test_bad_patience(settings: dict, message: str) -> None:
    """The message names the setting, the value and the remedy."""
    with pytest.raises(ValueError, match=message):
        Patience(**settings)
