"""Errors of trials where steps wait for the host, which changes more than the device."""

import numpy as np
import pytest

from energy_callbacks.core.records import NORMAL_95, Energy
from energy_callbacks.tuning.search.costs import with_spread
from energy_callbacks.tuning.search.trial import Trial
from tests.benchmarks.common.device_model import FREEDOM, STATED_OF_HOST, Device

# Trials of 1.5 to 2.5 s on an H100 (2026-11-27, docs/h200.md), one list for each process: batch
# size, samples/s, J/sample, and standard error of the mean of the blocks divided by that mean. The
# first three have ResNet-50, the others a transformer.
ON_H100 = (
    (
        (8, 322.1, 0.48, 0.0190),
        (8, 310.0, 0.4962, 0.0271),
        (8, 274.0, 0.5447, 0.0164),
        (8, 309.5, 0.497, 0.0224),
        (8, 294.4, 0.517, 0.0445),
        (8, 313.9, 0.4882, 0.0253),
    ),
    (
        (8, 295.8, 0.507, 0.0288),
        (8, 310.2, 0.4863, 0.0199),
        (8, 285.9, 0.516, 0.0173),
        (8, 280.5, 0.5238, 0.0187),
        (8, 299.3, 0.5012, 0.0274),
        (8, 263.9, 0.549, 0.0051),
    ),
    (
        (512, 4141.5, 0.1218, 0.0004),
        (8, 320.8, 0.4744, 0.0162),
        (8, 302.8, 0.4963, 0.0145),
        (8, 255.4, 0.5668, 0.0198),
        (512, 4140.6, 0.123, 0.0002),
        (8, 299.0, 0.5109, 0.0154),
    ),
    (
        (8, 220.7, 1.4473, 0.0382),
        (8, 197.3, 1.5125, 0.0124),
        (8, 205.9, 1.4897, 0.0279),
        (8, 219.9, 1.4541, 0.0183),
        (8, 206.4, 1.5047, 0.0172),
        (8, 228.2, 1.4279, 0.0219),
    ),
    (
        (64, 668.4, 0.9512, 0.0009),
        (8, 229.7, 1.4253, 0.0282),
        (8, 221.5, 1.4431, 0.0292),
        (8, 219.1, 1.4554, 0.0230),
    ),
)
RESNET, TRANSFORMER = ON_H100[:3], ON_H100[3:]


def measured(process):
    """Return the trials of a process."""
    return [
        Trial(
            size=size,
            steps=1,
            duration_s=size / speed,
            stderr_s=error * size / speed,
            energy=Energy(energy_j=joules * size, stderr_j=error * joules * size),
        )
        for size, speed, joules, error in process
    ]


@pytest.mark.parametrize("processes", [RESNET, TRANSFORMER], ids=["ResNet-50", "transformer"])
def test_intervals_hold_the_mean_of_their_size(processes):
    """Of 16 and 9 measured trials of batch 8, at least 90 % hold their mean; few steps do not."""
    small = [trial for process in processes for trial in measured(process) if trial.size == 8]
    speed = np.mean([trial.samples_per_s for trial in small])
    joules = np.mean([trial.j_per_sample for trial in small])

    def held(trials):
        return np.mean(
            [
                is_inside
                for trial in trials
                if trial.size == 8
                for is_inside in (
                    abs(trial.samples_per_s / speed - 1.0) <= NORMAL_95 * trial.time_error,
                    abs(trial.j_per_sample / joules - 1.0) <= NORMAL_95 * trial.energy_error,
                )
            ]
        )

    found = [trial for process in processes for trial in with_spread(measured(process))]
    assert held(small) < 0.75
    assert held(found) >= 0.9


def test_a_size_that_does_not_wait_for_the_host_keeps_a_small_error():
    """Batch 512 took the same time twice, beside batch 8 that varied by 9 %."""
    found = with_spread(measured(RESNET[2]))
    large = [trial.time_error for trial in found if trial.size == 512]
    small = [trial.time_error for trial in found if trial.size == 8]
    assert max(large) < 0.04
    assert min(small) > 0.05


def search(seed):
    """Return trials as of a search: small sizes state 2 % and scatter by 6 %, large ones do not."""
    dice = np.random.default_rng(seed)
    found = []
    for size in (8, 64, 512, 512, 256, 8, 1024, 512, 256, 1024):
        stated, scatter = (0.02, 0.06) if size < 100 else (0.0005, 0.003)
        step_s = (10.0 + size / 10.0) * np.exp(scatter * dice.normal())
        found.append(Trial(size=size, steps=1, duration_s=step_s, stderr_s=stated * step_s))
    return found


def test_errors_follow_the_scatter_of_their_size():
    """In the median of five searches, sizes with a scatter of 6 % and 0.3 % have such errors."""
    found = [trial for seed in range(5) for trial in with_spread(search(seed))]
    small = np.median([trial.time_error for trial in found if trial.size < 100])
    large = np.median([trial.time_error for trial in found if trial.size > 100])
    assert small == pytest.approx(0.06, rel=0.5)
    assert large == pytest.approx(0.004, rel=0.5)


def test_simulated_hosts_change_the_time_of_steps_that_wait_for_them():
    """Half of the step waits: 3 of 6 % show in time, of which trials state a third."""
    device = Device(corner=64.0, sharpness=1.0, host_noise=0.06, idle_w=100.0)
    size, dice = np.array([64.0]), np.random.default_rng(0)
    assert device.host_share(size)[0] == pytest.approx(0.5)
    trials = [device.trial(64, dice, 0.0) for _ in range(2000)]
    times_s = np.array([trial.duration_s for trial in trials])
    assert times_s.std() / times_s.mean() == pytest.approx(0.03, rel=0.1)
    stated = np.array([trial.time_error for trial in trials])
    assert np.sqrt(np.mean(stated**2)) == pytest.approx(STATED_OF_HOST * 0.03, rel=0.05)
    assert stated.std() / stated.mean() == pytest.approx(1.0 / np.sqrt(2.0 * FREEDOM), rel=0.15)
    joules = np.array([trial.energy.energy_j for trial in trials])
    slope = np.polyfit(times_s, joules, 1)[0]
    assert slope == pytest.approx(100.0, rel=0.01)
