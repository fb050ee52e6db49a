"""Compares energies of 1 s under short steps with the counter of a real GPU, read at every tick.

``python -m tests.gpu.short_steps --out FILE [--seconds 40]``: bf16 matrix products in a part of
each step. Another process reads the energy counter without a pause, so that the time of each of its
ticks is known, and the driver's buffer of power samples. From the recording, energy curves are
computed that get one of 33 ticks of the counter, with and without the period of the steps. The
table shows the mean error of the energy of 1 s against all ticks. ``--recording FILE`` computes the
table of an earlier recording and needs no GPU.
"""

import argparse
import json
import multiprocessing
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.core.records import Channel, Device, Reading
from energy_callbacks.sensing.estimation.energy_curve import EnergyCurve
from energy_callbacks.sensing.sources.nvidia.known_sensors import (
    counter_sensor,
    generation,
    samples_sensor,
)
from tests.gpu.products import products

Array = NDArray[np.float64]
# Period of the steps, s, and share of it in which the GPU works.
CASES: Final = (
    (0.024, 0.5),
    (0.0275, 0.5),
    (0.031, 0.5),
    (0.031, 0.25),
    (0.037, 0.5),
    (0.037, 0.3),
    (0.045, 0.4),
    (0.053, 0.5),
)
_ANCHOR_TICKS: Final = 33
_SECOND_TICKS: Final = 10
_HOPPER: Final = generation((9, 0))
_GPU: Final = Device(key="gpu0", kind="gpu", scope="gpu", name="GPU")
_POWER: Final = Channel(
    device=_GPU, quantity="power", kind="gauge", sensor=samples_sensor(_HOPPER, 0.02)
)
_ENERGY: Final = Channel(
    device=_GPU, quantity="energy", kind="counter", sensor=counter_sensor(_HOPPER)
)


def main() -> None:
    """Record, unless a recording is given, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file for the recording")
    parser.add_argument("--seconds", type=float, default=40.0, help="duration of each load")
    parser.add_argument("--recording", type=Path, help="a recording, instead of a measurement")
    arguments = parser.parse_args()
    if (arguments.out is None) == (arguments.recording is None):
        parser.error("give either --out FILE or --recording FILE")
    if arguments.out is not None:
        found = [record(period_s, duty, arguments.seconds) for period_s, duty in CASES]
        arguments.out.write_text(json.dumps(found))
    print(f"{'step':>8}{'duty':>8}{'mean':>9}{'straight lines':>18}{'wave followed':>18}")
    for one in json.loads((arguments.out or arguments.recording).read_text()):
        straight, followed = (100.0 * error(one, p) for p in (None, one["period_s"]))
        name = f"{1e3 * one['period_s']:>5g} ms{one['duty']:>8.0%}"
        print(f"{name}{mean_w(one):>7.0f} W{straight:>16.2f} %{followed:>16.2f} %")


def record(period_s: float, duty: float, duration_s: float) -> dict[str, Any]:
    """Read counter and samples while another process runs the load."""
    import pynvml as nvml

    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=load, args=(period_s, duty, duration_s + 1.0, ready))
    process.start()
    ready.wait()
    calls, samples = [], {}
    start_s = drained_s = time.time()
    while time.time() < start_s + duration_s:
        before_s = time.time()
        energy_mj = nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        calls.append((before_s, time.time(), energy_mj / 1e3))
        if time.time() > drained_s + 0.8:
            drained_s = time.time()
            _, buffer = nvml.nvmlDeviceGetSamples(handle, nvml.NVML_TOTAL_POWER_SAMPLES, 0)
            samples.update({s.timeStamp / 1e6: s.sampleValue.uiVal / 1e3 for s in buffer})
    process.join()
    return {"period_s": period_s, "duty": duty, "calls": calls, "samples": sorted(samples.items())}


def load(period_s: float, duty: float, duration_s: float, ready: Any) -> None:
    """Run products for the share ``duty`` of every step."""
    work = products(4096)
    work(50)
    count = max(round(period_s * duty / (work(200) / 200)), 1)
    ready.set()
    start_s = time.perf_counter()
    for step in range(round(duration_s / period_s)):
        while time.perf_counter() < start_s + step * period_s:
            pass
        work(count)


def ticks(one: dict[str, Any]) -> tuple[Array, Array]:
    """Return the times of the counter's ticks, of which two calls bracket each, and its values."""
    start_s, stop_s, value_j = np.array(one["calls"]).T
    changed = np.flatnonzero(np.diff(value_j))
    middle_s = (start_s[changed] + stop_s[changed + 1]) / 2.0
    weight = 1.0 / (stop_s[changed + 1] - start_s[changed])
    number = np.round((middle_s - middle_s[0]) / 0.1)
    clock = np.polynomial.Polynomial.fit(number, middle_s, 1, w=weight)
    return clock(number), value_j[changed + 1]


def error(one: dict[str, Any], period_s: float | None) -> float:
    """Return the mean error of the energy of 1 s between two ticks, as a share of the mean."""
    t_s, energy_j = ticks(one)
    off_j: list[float] = []
    for first in range(0, _ANCHOR_TICKS, 3):
        curve = EnergyCurve([_POWER, _ENERGY])
        if period_s is not None:
            curve.note_period(period_s)
        anchors = slice(first, None, _ANCHOR_TICKS)
        readings = [Reading(_POWER, s, w) for s, w in distinct(one["samples"])]
        pairs = zip(t_s[anchors], energy_j[anchors], strict=True)
        readings += [Reading(_ENERGY, float(s), float(j), 0.001) for s, j in pairs]
        curve.add(sorted(readings, key=lambda reading: reading.t_s))
        # The factor between samples and counter is learned in the first two segments.
        inside = np.arange(first + 2 * _ANCHOR_TICKS, len(t_s))
        inside = inside[t_s[inside] < t_s[anchors][-1]]
        for start, end in zip(inside, inside[_SECOND_TICKS:], strict=False):
            found_j = curve.energy(float(t_s[start]), float(t_s[end])).energy_j or 0.0
            off_j.append(abs(found_j - (energy_j[end] - energy_j[start])))
    return float(np.mean(off_j)) / mean_w(one)


def distinct(samples: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the samples once: the driver changes stamps by a few microseconds between calls."""
    pairs = zip([(0.0, 0.0), *samples], samples, strict=False)
    return [(after[0], after[1]) for before, after in pairs if after[0] - before[0] > 5e-4]


def mean_w(one: dict[str, Any]) -> float:
    """Return the mean power according to the counter."""
    t_s, energy_j = ticks(one)
    return float((energy_j[-1] - energy_j[0]) / (t_s[-1] - t_s[0]))


if __name__ == "__main__":
    main()
