"""``tune_batch_size`` for a plain loop: on virtual time, and in real steps of PyTorch."""

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.errors import NothingFits
from energy_callbacks.tuning.batch_size import tune_batch_size
from energy_callbacks.tuning.bench import Patience
from energy_callbacks.tuning.search.trial import Trial
from tests.tuning.simulated import Training

QUICK = Patience(block_s=0.005, least_s=0.02, most_s=0.05, seen_s=0.5)


def test_the_knee_is_found_and_was_run(tmp_path: Path) -> None:
    """With 20 ms + 1 ms per sample: 97 % of the throughput at the limit of 1000 samples."""
    training = Training(tmp_path, most=1000)
    result = tune_batch_size(training.step, max_size=4096, meter=training.meter)
    best = 1000 / 1.02
    knee = 20.0 / (1000.0 / (0.97 * best) - 1.0)
    assert result.size == pytest.approx(knee, rel=0.1)
    assert result.chosen.samples_per_s == pytest.approx(0.97 * best, rel=0.01)
    assert result.size in training.steps
    assert max(trial.size for trial in result.trials if trial.status == "ok") <= 1000


def test_the_search_has_its_own_cost_and_phase(tmp_path: Path) -> None:
    """Time and energy of the search; the report has them as the phase ``tuning``."""
    training = Training(tmp_path, most=64)
    start_s = training.clock.monotonic_s()
    result = tune_batch_size(training.step, max_size=64, meter=training.meter)
    assert not training.meter.is_running
    assert result.duration_s == pytest.approx(training.clock.monotonic_s() - start_s, abs=3.1)
    assert sum(trial.cost_s for trial in result.trials) <= result.duration_s
    assert result.energy_j == pytest.approx(training.used_j, rel=0.05)
    phases = {phase.name: phase for phase in training.meter.report().phases}
    assert phases["tuning"].total.energy_j == pytest.approx(result.energy_j, rel=0.05)


def test_a_meter_that_runs_goes_on(tmp_path: Path) -> None:
    """A search within a user's training does not stop the meter."""
    training = Training(tmp_path, most=64)
    with training.meter as meter:
        tune_batch_size(training.step, max_size=8, meter=meter)
        assert meter.is_running


def test_a_report_of_a_trial_may_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A dashboard that is gone costs no trial: the search ends with one warning."""

    def tell(trial: Trial) -> None:
        raise ConnectionError("the dashboard is gone")

    training = Training(tmp_path, most=64)
    result = tune_batch_size(training.step, max_size=64, meter=training.meter, on_trial=tell)
    assert result.size in training.steps
    assert caplog.text.count("the result of a trial cannot be reported") == 1


def test_a_fixed_global_batch_is_ranked_by_joules(tmp_path: Path) -> None:
    """For 96 samples per step the largest divisor needs the fewest launches."""
    training = Training(tmp_path, most=50)
    result = tune_batch_size(training.step, global_batch_size=96, meter=training.meter)
    assert (result.size, result.accumulation) == (48, 2)
    assert result.objective == "energy"
    assert {trial.size * trial.accumulation for trial in result.trials} == {96}
    assert result.chosen.samples_per_s == pytest.approx(96 / (2 * 0.02 + 0.096), rel=1e-3)
    assert result.chosen.j_per_sample == pytest.approx(400.0 * 0.136 / 96, rel=0.03)
    assert result.learning_rate_factors(96) == (1.0, 1.0)
    assert "48 x 2" in str(result)


@pytest.mark.parametrize("whole", [0, -8, 2.5, True])
def test_a_global_batch_that_is_none(tmp_path: Path, whole) -> None:
    """The error is raised before any step runs."""
    with pytest.raises(ValueError, match="global_batch_size must be a positive multiple"):
        tune_batch_size(lambda size, times: None, global_batch_size=whole)


def test_an_option_that_is_none() -> None:
    """The message names the option and all valid ones."""
    with pytest.raises(TypeError, match=r"'knee_share'; its options are global_batch_size, max_"):
        tune_batch_size(lambda size: None, knee_share=0.1)


@pytest.mark.parametrize(
    ("name", "words"),
    [("patience", "Patience(...)"), ("meter", "EnergyMeter(...)"), ("on_trial", "a function")],
)
def test_an_option_of_a_wrong_type(name: str, words: str) -> None:
    """The error is raised before any step runs."""
    with pytest.raises(TypeError, match=re.escape(f"{name} must be {words}, got 3; leave {name}")):
        tune_batch_size(lambda size: None, **{name: 3})


@pytest.mark.parametrize("name", ["step", "restore", "worst"])
def test_a_function_that_is_none(name: str) -> None:
    """The error is raised before any step runs, and names the argument."""
    functions: dict[str, Any] = {"step": lambda size: pytest.fail("ran"), name: 3}
    with pytest.raises(TypeError, match=f"{name} must be a function.*, got 3; "):
        tune_batch_size(**functions)


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "2"])
def test_a_wrong_number_of_steps_of_a_call(count) -> None:
    """The error is raised before any step runs."""
    with pytest.raises(ValueError, match="steps_per_call must be a whole number of at least 1"):
        tune_batch_size(lambda size: pytest.fail("ran"), steps_per_call=count)


def test_each_trial_begins_with_the_worst_case(tmp_path: Path) -> None:
    """A size fits only if its longest sequences fit; speed is measured with normal ones."""
    training = Training(tmp_path, most=50)

    def worst(size: int) -> None:
        training.step(2 * size)

    result = tune_batch_size(training.step, worst=worst, objective="largest", meter=training.meter)
    assert result.size == 25
    assert result.chosen.samples_per_s == pytest.approx(25 / 0.045, rel=1e-3)


def test_nothing_fits(tmp_path: Path) -> None:
    """The message names the smallest size, the error and the remedy."""
    training = Training(tmp_path, most=7)
    with pytest.raises(NothingFits, match=r"batch size 8 does not fit: MemoryError: .*min_size"):
        tune_batch_size(training.step, min_size=8, meter=training.meter)
    assert not training.meter.is_running


def test_joules_that_nobody_measures(tmp_path: Path) -> None:
    """The message says that energy is unknown, not that nothing fits."""
    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), sources=[])
    with pytest.raises(NothingFits, match="energy of no trial is known: choose objective="):
        tune_batch_size(
            lambda size: None, objective="energy", max_size=2, meter=meter, patience=QUICK
        )


class Net:
    """A small training with all kinds of state."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(), torch.nn.ReLU()
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2)
        self.most = 64

    def step(self, size: int) -> float:
        """Run one step; too large ones fail in the middle."""
        self.optimizer.zero_grad()
        loss = self.model(torch.randn(size, 8)).square().mean()
        loss.backward()
        if size > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        self.optimizer.step()
        self.schedule.step()
        random.random()
        np.random.random()
        return float(loss.detach())

    @property
    def keep(self) -> list:
        """Return the objects for ``tune_batch_size``."""
        return [self.model, self.optimizer, self.schedule]


@pytest.mark.parametrize(("before", "most"), [(0, 64), (3, 64), (3, 2), (0, 1), (3, 1)])
def test_the_training_goes_on_as_if_nothing_had_been(tmp_path: Path, before, most) -> None:
    """Losses after a search are identical to those without one, also if nothing has fitted."""
    with_search, without = [], []
    for losses in (with_search, without):
        net = Net()
        random.seed(1)
        np.random.seed(1)
        for _ in range(before):
            net.step(4)
        net.most = most
        if losses is with_search:
            meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), sources=[])
            try:
                tune_batch_size(
                    net.step,
                    keep=net.keep,
                    min_size=2,
                    max_size=96,
                    max_trials=6,
                    meter=meter,
                    patience=QUICK,
                )
            except NothingFits:
                assert most < 2
        net.most = 64
        losses += [net.step(4) for _ in range(5)]
        losses += [random.random(), float(np.random.random()), net.schedule.get_last_lr()]
    assert with_search == without


def test_an_error_of_the_step_passes_through(tmp_path: Path) -> None:
    """The error propagates, and the training is restored."""
    net = Net()
    weights = [parameter.detach().clone() for parameter in net.model.parameters()]

    def broken(size: int) -> None:
        net.step(size)
        raise ZeroDivisionError(size)

    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), sources=[])
    with pytest.raises(ZeroDivisionError):
        tune_batch_size(broken, keep=net.keep, min_size=2, meter=meter, patience=QUICK)
    assert not meter.is_running
    assert all(map(torch.equal, weights, net.model.parameters()))
    assert not net.optimizer.state


def test_compiled_steps_are_those_of_a_training(tmp_path: Path) -> None:
    """Steps are compiled for one size, in trials and afterwards, as in a training."""
    seen = []

    def backend(graph, inputs):
        seen.append([tuple(one.shape) for one in inputs if one.dim() == 2][-1][0])
        return graph.forward

    model = torch.compile(torch.nn.Linear(8, 4), backend=backend)

    def step(size: int) -> None:
        model(torch.randn(size, 8)).sum().backward()

    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), sources=[])
    result = tune_batch_size(
        step, keep=[model], min_size=4, max_size=64, powers_of_two=True, max_trials=4,
        objective="throughput", meter=meter, patience=QUICK,
    )  # fmt: skip
    assert all(type(size) is int for size in seen)
    assert set(seen) == {trial.size for trial in result.trials}
    step(16)
    assert type(seen[-1]) is int
    torch.compiler.reset()


def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    """The error is raised before any step runs."""
    with pytest.raises(TypeError, match="state_dict"):
        tune_batch_size(lambda size: None, keep=[object()])


def test_the_table(tmp_path: Path) -> None:
    """Sizes in ascending order, with out-of-memory errors and the chosen size."""
    training = Training(tmp_path, most=50)
    text = str(tune_batch_size(training.step, max_size=64, meter=training.meter))
    assert "out of memory" in text
    assert text.count("  chosen") == 1
    sizes = [int(line.split()[0]) for line in text.splitlines()[3:]]
    assert sizes == sorted(sizes)
