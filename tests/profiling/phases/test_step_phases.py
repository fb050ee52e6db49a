"""Tests of StepPhases in a meter, with loops that report phases and PyTorch loops that do not."""

import copy
import pickle
import sys
import threading
from contextlib import nullcontext

import pytest

from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.records import Device
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.profiling.phases import StepPhases, step_phases
from energy_callbacks.profiling.phases.marks import PhaseMarks
from energy_callbacks.profiling.phases.split import Refusal
from energy_callbacks.report import build
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.profiling.phases import lab


class Loop:
    """Steps of 0.3 s at known powers on a virtual clock."""

    PHASES = (("data wait", 0.06, 80.0), ("forward", 0.09, 200.0), ("backward", 0.15, 350.0))

    def __init__(self, folder, phases, **source):
        self.clock = FakeClock()
        self.power_w = 50.0
        self.phases = phases
        self.source = ScriptedSource(
            self.clock, power_w=lambda _: self.power_w, interval_s=0.017, **source
        )
        self.meter = EnergyMeter(
            sources=[self.source],
            clock=self.clock,
            config=EnergyConfig(report_dir=folder),
            profilers=[phases],
        )

    def work(self, name, duration_s):
        self.power_w = {n: w for n, _, w in self.PHASES}[name]
        if name != "data wait":
            self.phases.enter(name)
        self.clock.advance(duration_s)

    def train(self, steps, *, validate_at=(), phase="train"):
        with self.meter, self.meter.phase(phase) if phase else nullcontext():
            for step in range(steps):
                for name, duration_s, _ in self.PHASES:
                    self.work(name, duration_s)
                self.meter.step(samples=8)
                if step in validate_at:
                    with self.meter.phase("validation"):
                        self.power_w = 500.0
                        self.clock.advance(5.0)
        return build(self.meter.run_folder).profile.step_phases


def test_phases_that_a_loop_tells(tmp_path):
    """Names, times, powers and the sum are right, with validations in between."""
    loop = Loop(tmp_path, StepPhases())
    found = loop.train(150, validate_at=(50, 100))
    assert found.refusal is None
    assert found.timed_by == "host"
    assert found.steps == 140
    assert found.step_s == pytest.approx(0.3, rel=1e-6)
    assert [phase.name for phase in found.phases] == ["data wait", "forward", "backward"]
    for phase, (_, time_s, power_w) in zip(found.phases, loop.PHASES, strict=True):
        assert phase.time_s == pytest.approx(time_s, rel=1e-6)
        assert phase.energy_j / phase.time_s == pytest.approx(power_w, rel=0.02)
    truth_j = sum(time_s * power_w for _, time_s, power_w in loop.PHASES)
    assert found.measured_j == pytest.approx(truth_j, rel=0.02)
    assert found.split_j == pytest.approx(truth_j, rel=0.02)


def test_a_loop_that_enters_no_phase_trains(tmp_path):
    """Without ``meter.phase("train")``, not all of a step is waiting for data."""
    found = Loop(tmp_path, StepPhases()).train(100, phase=None)
    times_s = {phase.name: phase.time_s for phase in found.phases}
    assert times_s == pytest.approx({name: time_s for name, time_s, _ in Loop.PHASES}, rel=1e-6)


def test_steps_of_another_phase_are_not_those_of_the_training(tmp_path):
    """In a phase ``warmup``, a step is not all waiting for data."""
    loop = Loop(tmp_path, StepPhases())
    with loop.meter, loop.meter.phase("warmup"):
        for _ in range(30):
            loop.work("forward", 0.1)
            loop.meter.step()
    assert build(tmp_path).profile is None


def test_only_so_much_is_followed(tmp_path):
    """Twenty seconds of a minute are followed."""
    found = Loop(tmp_path, StepPhases(follow_s=20.0)).train(200)
    assert found.steps == pytest.approx(67, abs=1)
    assert found.step_s == pytest.approx(0.3, rel=1e-6)


def test_a_training_that_goes_on_for_long(tmp_path):
    """Readings are kept before the timeline discards them, half an hour before the end."""
    short, long = (
        Loop(tmp_path / str(steps), StepPhases(follow_s=20.0)).train(steps) for steps in (80, 6000)
    )
    assert long.refusal is None, long.sentence
    for after_short, after_long in zip(short.phases, long.phases, strict=True):
        assert after_long.energy_j == pytest.approx(after_short.energy_j, rel=0.01)
    assert long.measured_j == pytest.approx(short.measured_j, rel=0.01)


def test_a_bug_in_a_hook_is_not_the_trainings(tmp_path, monkeypatch, caplog):
    """An error in a hook of PyTorch yields one warning, and all hooks are removed."""
    torch = pytest.importorskip("torch")
    machine = lab.Machine()
    model, optimizer = lab.training(torch, machine)
    threads = set(threading.enumerate())

    def broken(self, name, t_s):
        if name == "forward":
            raise OSError("our bug")

    with machine.meter(tmp_path, StepPhases()) as meter, meter.phase("train"):
        for step in range(20):
            if step == 15:
                monkeypatch.setattr(PhaseMarks, "begin", broken)
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            meter.step()
        assert "StepPhases stopped" in caplog.text
        assert not is_hooked(torch)
    left = {thread.name for thread in set(threading.enumerate()) - threads}
    assert "energy_callbacks phases" not in left
    assert build(tmp_path).throughput.steps == 20


def test_what_is_no_model_begins_no_forward_and_a_validation_uses_no_hook_up(tmp_path):
    """A transform of the loader begins no forward phase; a validation does not use up the hook."""
    torch = pytest.importorskip("torch")
    machine = lab.Machine()
    model, optimizer = lab.training(torch, machine)
    phases = StepPhases()
    begun = []
    with machine.meter(tmp_path, phases) as meter, meter.phase("train"):
        for step in range(14):
            if phases._run.marks is not None:
                begun.append([name for name, _ in phases._run.marks._marks])
                phases._run.marks._marks.clear()
            torch.nn.Identity()(torch.ones(1))
            meter.data_ready()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            if step == 12:
                with meter.phase("validation"):
                    model(torch.ones(2, 4))
            meter.step()
        begun.append([name for name, _ in phases._run.marks._marks])
    usual = ["transfer", "forward", "backward", "other", "optimizer", "other", "data wait"]
    assert begun[2] == usual
    assert begun[-1] == usual, "the step after a validation"


def test_a_copy_of_one_that_follows_follows_nothing(tmp_path):
    """A profiler can be pickled and copied during a training; the copy does not run."""
    loop = Loop(tmp_path, StepPhases(follow_s=30.0))
    with loop.meter, loop.meter.phase("train"):
        for _ in range(15):
            for name, duration_s, _ in loop.PHASES:
                loop.work(name, duration_s)
            loop.meter.step()
        for twin in (copy.deepcopy(loop.phases), pickle.loads(pickle.dumps(loop.phases))):
            assert twin._run is None
            assert twin.follow_s == 30.0
        assert copy.deepcopy(loop.meter).is_running is False


@pytest.mark.parametrize("wait_s", [None, 0.002, 0.1])
def test_a_step_in_one_call_says_so(tmp_path, wait_s):
    """If only waits and ends of steps are known, as in a jitted step, the split is refused."""
    clock = FakeClock()
    meter = EnergyMeter(
        sources=[ScriptedSource(clock, power_w=lambda _: 100.0, interval_s=0.02)],
        clock=clock,
        config=EnergyConfig(report_dir=tmp_path),
        profilers=[StepPhases()],
    )
    with meter, meter.phase("train"):
        for _ in range(100):
            if wait_s is not None:
                clock.advance(wait_s)
                meter.data_ready()
            clock.advance(0.2)
            meter.step()
    found = build(tmp_path).profile.step_phases
    assert "no forward or backward was detected" in found.refusal
    assert "KernelProfiler" in found.help


def test_a_model_of_power_is_no_sensor(tmp_path):
    """With an estimated power, times are reported and the split is refused."""
    device = Device(
        key="cpu0", kind="cpu", scope="host", name="estimated processor", origin="estimated"
    )
    found = Loop(tmp_path, StepPhases(), device=device).train(100)
    assert "is estimated by a model" in found.refusal
    assert found.phases[1].time_s == pytest.approx(0.09)
    assert found.phases[1].energy_j is None


@pytest.mark.parametrize(
    ("duration_s", "names"),
    [(0.009, ["data wait, forward", "backward"]), (0.09, ["data wait", "forward", "backward"])],
)
def test_a_short_phase_that_is_not_known_joins_the_next(tmp_path, monkeypatch, duration_s, names):
    """A short phase with a wide interval joins the next; a long one refuses the split."""
    made = step_phases.split

    def doubtful(spans, said, names, steps, group_of=None):
        if len(names) == 3:
            return Refusal(why="data wait is not known", help="nothing", phase=0)
        return made(spans, said, names, steps, group_of)

    monkeypatch.setattr(step_phases, "split", doubtful)
    loop = Loop(tmp_path, StepPhases())
    loop.PHASES = (("data wait", duration_s, 80.0), *loop.PHASES[1:])
    found = loop.train(200)
    assert [phase.name for phase in found.phases] == names
    assert (found.refusal is None) == (len(names) == 2)


@pytest.mark.parametrize("steps", [5, 10])
def test_too_short_a_training_has_no_profile(tmp_path, steps):
    """Ten steps have no profile, because the first ten are skipped."""
    clock = FakeClock()
    meter = EnergyMeter(
        sources=[], clock=clock, config=EnergyConfig(report_dir=tmp_path), profilers=[StepPhases()]
    )
    with meter, meter.phase("train"):
        for _ in range(steps):
            meter.step()
    assert build(tmp_path).profile is None


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf")])
def test_time_must_be_positive(value):
    """The constructor raises an error."""
    with pytest.raises(ValueError, match="follow_s must be positive"):
        StepPhases(follow_s=value)


def is_hooked(torch):
    """Return whether hooks are installed in PyTorch."""
    optimizer = sys.modules["torch.optim.optimizer"]
    return bool(
        torch.nn.modules.module._global_forward_pre_hooks
        or optimizer._global_optimizer_pre_hooks
        or optimizer._global_optimizer_post_hooks
        or hasattr(torch.autograd.backward, "__wrapped__")
    )


def train(torch, machine, folder, steps):
    """Run a plain loop with two micro-batches per step; returns the phases of the report."""
    model, optimizer = lab.training(torch, machine)
    with machine.meter(folder, StepPhases()) as meter, meter.phase("train"):
        for step in range(steps):
            for _ in range(2):
                machine.work("data wait", 0.011 + 0.004 * (step % 3))
                meter.data_ready()
                model(torch.ones(2, 4)).sum().backward()
                meter.batch_done()
            optimizer.step()
            optimizer.zero_grad()
            meter.step(samples=4)
    assert not is_hooked(torch)
    return build(folder).profile.step_phases


def test_pytorch_tells_its_phases_itself(tmp_path):
    """Phases of a plain PyTorch loop are found without calls of the user."""
    torch = pytest.importorskip("torch")
    found = train(torch, lab.Machine(), tmp_path, 85)
    lab.check(found, batches=2)
    wait = found.phases[0]
    assert wait.name == "data wait"
    assert wait.time_s == pytest.approx(2 * 0.015, rel=0.01)
    assert wait.energy_j / wait.time_s == pytest.approx(lab.LEVELS_W["data wait"], rel=0.03)


def test_phases_in_real_time(tmp_path):
    """In real time, phases last at least as long as they sleep; the split is refused."""
    torch = pytest.importorskip("torch")
    found = train(torch, lab.Machine(is_live=True), tmp_path, 14)
    assert found.steps == 4
    times_s = {phase.name.split(", ")[-1]: phase.time_s for phase in found.phases}
    for name, time_s in lab.TIMES_S.items():
        assert times_s[name] >= (1 if name == "optimizer" else 2) * time_s
    assert "too few" in found.refusal


def test_pytorch_is_left_alone_once_enough_was_seen(tmp_path):
    """Hooks are installed only while steps are followed."""
    torch = pytest.importorskip("torch")
    machine, seen = lab.Machine(), []
    with machine.meter(tmp_path, StepPhases(follow_s=0.02)) as meter, meter.phase("train"):
        for _ in range(40):
            machine.work("forward", 0.002)
            meter.step()
            seen.append(is_hooked(torch))
    assert [number for number, hooked in enumerate(seen) if hooked] == list(range(9, 20))


def test_pytorch_is_left_alone_after_an_exception(tmp_path):
    """Hooks are removed after an exception in the middle of a step."""
    torch = pytest.importorskip("torch")
    with pytest.raises(ZeroDivisionError):
        train_until_it_fails(tmp_path, torch)
    assert not is_hooked(torch)


def train_until_it_fails(folder, torch):
    """Raise an error after twelve steps and a half."""
    machine = lab.Machine()
    model, _ = lab.training(torch, machine)
    with machine.meter(folder, StepPhases()) as meter, meter.phase("train"):
        for _ in range(12):
            meter.step()
        model(torch.ones(2, 4))
        raise ZeroDivisionError
