"""Steps and energy over time, compared with closed forms."""

import pytest

from energy_callbacks.report import build
from energy_callbacks.report.collect.progress import MAX_POINTS
from tests.report.journals import IDLE, TRAIN, Attempt, Stretch, write

VALIDATION = Stretch(phase="validation", duration_s=10.0, power_w={"gpu0": 300.0, "cpu0": 50.0})


def test_energy_in_training_leaves_out_what_lies_between(tmp_path):
    """20 s at 120 W, 60 s at 600 W, 10 s of validation at 350 W, 60 s at 600 W."""
    write(tmp_path, Attempt(stretches=(IDLE, TRAIN, VALIDATION, TRAIN)))
    done = build(tmp_path).progress
    assert done.t_s[0] == pytest.approx(21.0)
    assert (done.step[0], done.samples[0]) == (10, 320)
    assert done.energy_j[0] == pytest.approx(20 * 120 + 600)
    assert done.train_j[0] == pytest.approx(600)
    at = done.t_s.index(91.0)  # a second into the second stretch
    assert done.step[at] == 610
    assert done.energy_j[at] == pytest.approx(2400 + 36_000 + 3500 + 600)
    assert done.train_j[at] == pytest.approx(36_600)
    assert done.train_j[-1] == pytest.approx(72_000)


def test_a_resumed_run_goes_on_from_its_checkpoint(tmp_path):
    """Steps are those of the run, samples and joules all that were spent."""
    write(tmp_path, Attempt(stretches=(TRAIN,)))
    second = Attempt(stretches=(TRAIN,), attempt=2, resumed_at_step=400, unix_s=1_790_001_000.0)
    write(tmp_path, second)
    done = build(tmp_path).progress
    first = done.t_s.index(60.0)
    assert (done.step[first], done.step[first + 1]) == (600, 410)
    assert done.samples[-1] == 2 * 600 * 32
    assert done.energy_j[-1] == pytest.approx(72_000)
    assert done.train_j[-1] == pytest.approx(72_000)


def test_ranks_share_the_steps_and_add_their_samples(tmp_path):
    """Two ranks on one host: a step of both has the samples of both."""
    for rank in (0, 1):
        write(tmp_path, Attempt(rank=rank, world_size=2))
    done = build(tmp_path).progress
    assert done.step[-1] == 600
    assert done.samples[-1] == 2 * 600 * 32


def test_nothing_is_told_where_nobody_counted(tmp_path):
    """Unknown samples stay unknown, a run without steps has no progress."""
    write(tmp_path / "a", Attempt(samples_per_step=None))
    assert build(tmp_path / "a").progress.samples is None
    write(tmp_path / "b", Attempt(stretches=(IDLE,)))
    assert build(tmp_path / "b").progress is None


def test_a_long_run_has_few_points(tmp_path):
    """The last one among them."""
    long = Stretch(phase="train", duration_s=2000.0, power_w={"gpu0": 100.0})
    write(tmp_path, Attempt(stretches=(long,)))
    done = build(tmp_path).progress
    assert len(done.t_s) == MAX_POINTS
    assert done.t_s[-1] == pytest.approx(2000.0)
    assert done.train_j[-1] == pytest.approx(200_000, rel=1e-6)
