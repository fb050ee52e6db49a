"""The estimator against recordings of real cards, whose truth another instrument has seen.

* ``external_meter/``: an RTX 3090 under 8 s of 50 ms on, 50 ms off, with a meter in its supply
  lines at 4.8 kHz. The readings are polled as on a card and windows of 1 s are compared with the
  meter; one gain for all windows is divided out, as it is the card's and not the method's. The bars
  are for windows inside the load; windows that reach into the idle time around it stand beside.
* ``h200_power/``: samples and energy counter of an H200 under square waves. The samples alone are
  compared with what the counter rose by. A new value was seen when a slow call came back, so its
  tick lies up to two calls before that; a clock that agrees with all ticks places it.
"""

import csv
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from energy_callbacks.records import Channel, Device, Energy, Reading, Sensor
from energy_callbacks.sensing.energy import EnergyCurve
from energy_callbacks.sensing.sources.nvml_sensors import generation, samples_sensor
from energy_callbacks.sensing.sources.tick_clock import TickClock
from tests.benchmarks.cards import Array

METER_BARS: Final = {"average_w": 0.025, "instant_w": 0.013}  # p95 of |error| on windows of 1 s
COUNTER_BAR: Final = 0.008
_FIELDS: Final = {"average_w": "mean of 1 s", "instant_w": "instant"}
_DEVICE: Final = Device(key="gpu0", kind="gpu", scope="gpu", name="recorded")
_WINDOW_S: Final = 1.0
_POLLINGS, _WINDOWS = 20, 100
# A poll each 0.1 s, give or take a quarter (sensing/sources/nvml_readers.py).
_POLL_S: Final = (0.075, 0.125)
# Two calls of the counter, each up to 24 ms, and its period (docs/how-it-measures.md).
_SEEN_AFTER_S, _TICK_S = 0.048, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One comparison.

    Attributes:
        what: was compared.
        error: as a share of the truth.
        bar: the most that it may be; ``None`` where nothing is judged.
    """

    what: str
    error: float
    bar: float | None

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.bar is None:
            return "no bar"
        return "met" if self.error <= self.bar else "MISSED"


def findings(folder: Path) -> Iterator[Finding]:
    """All comparisons with the recordings below a folder.

    Raises:
        FileNotFoundError: where recordings are missing.
    """
    for field, bar in METER_BARS.items():
        for where, limit in (("in the load", bar), ("anywhere", None)):
            errors, stated = meter_errors(
                folder / "external_meter", field, is_loaded=limit is not None
            )
            held = f"{np.mean(errors <= stated):.0%}"
            what = f"RTX 3090, {_FIELDS[field]}, p95 on 1 s windows {where} (holds {held})"
            yield Finding(what=what, error=float(np.percentile(errors, 95.0)), bar=limit)
    recordings = sorted((folder / "h200_power").glob("*.json.gz"))
    if not recordings:
        raise FileNotFoundError(f"no recordings (*.json.gz) in {folder / 'h200_power'}")
    for path in recordings:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            found, rise_j = samples_and_counter(*_samples_and_ticks(json.load(file)))
        assert found.energy_j is not None
        what = f"H200, samples against counter, {path.name.removesuffix('.json.gz')}"
        stated = f" (states {1.96 * found.stderr_j / found.energy_j:.1%})"
        yield Finding(what=what + stated, error=abs(found.energy_j / rise_j - 1.0), bar=COUNTER_BAR)


# --- RTX 3090 and meter


def meter_errors(folder: Path, field: str, *, is_loaded: bool) -> Array:
    """Errors of random windows of 1 s and the random part stated, (2, n), as shares of the truth.

    The card's gain is divided out of both.

    Args:
        folder: with the recording.
        field: column of the card's readings.
        is_loaded: only windows inside the load.
    """
    meter = _columns(folder / "rtx3090_meter.csv.gz")
    rows = _columns(folder / "rtx3090_nvidia_smi.csv.gz")
    times_s, power_w = meter["t_s"], meter["power_w"]
    seen = power_w > power_w.max() / 2.0 if is_loaded else np.full(len(times_s), fill_value=True)
    span_s = float(times_s[seen][0]), float(times_s[seen][-1])
    mean_w = (power_w[1:] + power_w[:-1]) / 2.0
    true_j = np.concatenate([[0.0], np.cumsum(mean_w * np.diff(times_s))])
    card = generation((8, 6))
    sensor = card.usage if field == "average_w" else card.instant
    assert sensor is not None
    shares = []
    for seed in range(_POLLINGS):
        curve = _curve(sensor, _polled(rows["t_s"], rows[field], seed))
        starts = np.random.default_rng(seed).uniform(span_s[0], span_s[1] - _WINDOW_S, _WINDOWS)
        pairs = [span_s, *((start_s, start_s + _WINDOW_S) for start_s in starts)]
        energies = [curve.energy(*pair) for pair in pairs]
        found = np.array([[e.energy_j, 1.96 * e.stderr_j] for e in energies], dtype=float).T
        ratio, stated = found / np.diff(np.interp(pairs, times_s, true_j)).ravel()
        shares.append(np.array([np.abs(ratio / ratio[0] - 1.0), stated / ratio[0]])[:, 1:])
    return np.concatenate(shares, axis=1)


def _polled(times_s: Array, power_w: Array, seed: int) -> Array:
    """Of rows that are 7 ms apart those that polling would have seen, (n, 2)."""
    dice = np.random.default_rng(seed)
    most = round((times_s[-1] - times_s[0]) / _POLL_S[0])
    polls = times_s[0] + np.cumsum(dice.uniform(*_POLL_S, most))
    rows = np.searchsorted(times_s, polls[polls <= times_s[-1]], side="right") - 1
    return np.column_stack([times_s[rows], power_w[rows]])


def _columns(path: Path) -> dict[str, Array]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    values = np.array(rows, dtype=float)
    return {name: values[:, index] for index, name in enumerate(head)}


# --- H200 and its counter


def samples_and_counter(samples: Array, ticks: Array) -> tuple[Energy, float]:
    """Energy of the samples alone, and by how much the counter rose, from its first to last tick.

    Args:
        samples: (n, 2), s and W.
        ticks: (m, 2), s at which a new value was seen, and that value in J.

    Raises:
        ValueError: where no regular clock agrees with the ticks.
    """
    curve = _curve(samples_sensor(generation((9, 0)), None), samples)
    assert curve.newest_s is not None
    clock, numbers = TickClock(), np.rint((ticks[:, 0] - ticks[0, 0]) / _TICK_S).astype(int)
    for number, seen_s in zip(numbers, ticks[:, 0], strict=True):
        if not clock.see(int(number), seen_s - _SEEN_AFTER_S, seen_s):
            raise ValueError(f"tick {number}, seen at {seen_s:.3f} s, keeps no regular clock")
    times_s = [float(np.mean(clock.span(int(number)))) for number in numbers]
    last = int(np.searchsorted(times_s, curve.newest_s, side="right")) - 1
    return curve.energy(times_s[0], times_s[last]), float(ticks[last, 1] - ticks[0, 1])


def _samples_and_ticks(recording: Mapping[str, Sequence[Sequence[float]]]) -> tuple[Array, Array]:
    """Both with times in s after the first sample, in SI."""
    zero_us = recording["samples"][0][0]
    samples = [((unix_us - zero_us) / 1e6, mw / 1e3) for unix_us, mw in recording["samples"]]
    ticks = [(unix_s - zero_us / 1e6, mj / 1e3) for unix_s, mj in recording["counter"]]
    return np.array(samples), np.array(ticks)


def _curve(sensor: Sensor, readings: Array) -> EnergyCurve:
    channel = Channel(device=_DEVICE, quantity="power", kind="gauge", sensor=sensor)
    curve = EnergyCurve([channel])
    curve.add([Reading(channel, t_s, power_w) for t_s, power_w in readings.tolist()])
    curve.finish()
    return curve
