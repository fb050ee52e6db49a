"""Short trainings in one process leave no thread, file or object behind."""

import os
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.benchmarks.many_fits import held_now, left

WARM, FITS = 3, 10


def attempt(folder: Path, clock: FakeClock) -> None:
    """Train three steps with a new meter."""
    source = ScriptedSource(clock, power_w=lambda t_s: 100.0, energy_j=lambda t_s: 100.0 * t_s)
    meter = EnergyMeter(config=EnergyConfig(report_dir=folder), sources=[source], clock=clock)
    with meter, meter.phase("train"):
        for _ in range(3):
            clock.advance(1.0)
            meter.step(samples=1)
            meter.log(0)


def leak_per_fit(fit: Callable[[], object]) -> tuple[float, ...]:
    """Return the threads, files and objects that fits leave, per fit."""
    for _ in range(WARM):
        fit()
    before = held_now()
    for _ in range(FITS):
        fit()
    return tuple((b - a) / FITS for a, b in islice(zip(before, held_now(), strict=True), 3))


def test_attempts_leave_nothing_behind(tmp_path: Path) -> None:
    """After 10 attempts there are as many threads, files and objects as before them."""
    threads, files, objects = leak_per_fit(lambda: attempt(tmp_path, FakeClock()))
    assert (threads, files) == (0, 0)
    assert objects < 0.5


def test_a_leak_is_seen() -> None:
    """An object, a file and a thread for each fit are found."""
    kept: list[tuple[threading.Thread, int]] = []
    ends = threading.Event()

    def fit() -> None:
        thread = threading.Thread(target=ends.wait)
        thread.start()
        kept.append((thread, os.open(os.devnull, os.O_RDONLY)))

    threads, files, objects = leak_per_fit(fit)
    ends.set()
    for thread, file in kept:
        thread.join()
        os.close(file)
    assert (threads, files) == (1, 1)
    assert objects > 1.0


def test_slopes_are_those_of_the_second_half() -> None:
    """Caches that fill in the first half are no leak; 3 kB and an object for each fit are one."""
    fits = np.arange(100.0)
    memory = 1e8 + 3e3 * fits + 1e6 * np.minimum(fits, 20.0)
    allocated = 7e7 + 2e3 * fits
    held = np.stack([fits * 0 + 2, fits * 0 + 4 + (fits > 60), fits, allocated, memory], axis=1)
    found = left(held, 1000)
    assert (found.threads, found.files) == (0, 1)
    assert found.objects == pytest.approx(0.1)
    assert found.allocated == pytest.approx(200.0)
    assert found.resident == pytest.approx(300.0)


def test_objects_that_appear_once_are_no_leak() -> None:
    """200 objects in the middle of the second half are those of one event, not of each fit."""
    looks = np.arange(10.0)
    held = np.stack([looks * 0, looks * 0, 200.0 * (looks > 7), looks * 0, looks * 0], axis=1)
    assert left(held, 100).objects == 0.0
