"""Compares the estimator with recordings of real cards, whose truth another instrument measured.

* ``external_meter/``: an RTX 3090 under 8 s of 50 ms on, 50 ms off, with a meter in its supply
  lines at 4.8 kHz. The readings are polled as on a card and windows of 1 s are compared with the
  meter. One gain for all windows is divided out, as it belongs to the card and not to the method.
  The bars are for windows inside the load; windows that reach into the idle time around it are
  shown as well.
* ``h200_power/``: samples and energy counter of an H200 under square waves. The samples alone are
  compared with the rise of the counter. A new value was seen when a slow call returned, so its
  tick lies up to two calls earlier; a clock that agrees with all ticks dates it. Two figures have
  no bar: the error of all spans of 3 s, and the error of samples at the exact stamps of the
  recording for a square wave of its period whose energy is known.
"""

import csv
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from energy_callbacks.core.records import Channel, Device, Energy, Reading, Sensor
from energy_callbacks.sensing.estimation.energy_curve import EnergyCurve
from energy_callbacks.sensing.sources.nvidia.known_sensors import generation, samples_sensor
from energy_callbacks.sensing.sources.nvidia.tick_clock import TickClock
from tests.benchmarks.common.cards import Array
from tests.fake_nvml.signals import Square

METER_BARS: Final = {"average_w": 0.025, "instant_w": 0.013}  # p95 of |error| on windows of 1 s
COUNTER_BAR: Final = 0.008
_FIELDS: Final = {"average_w": "mean of 1 s", "instant_w": "instant"}
_DEVICE: Final = Device(key="gpu0", kind="gpu", scope="gpu", name="recorded")
_WINDOW_S: Final = 1.0
_POLLINGS, _WINDOWS = 20, 100
# A poll every 0.1 s, plus or minus a quarter (sensing/sources/nvidia/power.py).
_POLL_S: Final = (0.075, 0.125)
# Two calls of the counter, each up to 24 ms, and its period (docs/how-it-measures.md).
_SEEN_AFTER_S, _TICK_S = 0.048, 0.1
_SPAN_TICKS: Final = 30
# Low and high power of the square wave: those of the samples under 50 ms on, 50 ms off.
_SQUARE_W, _PHASES = (150.0, 900.0), 100
_FEWEST_EDGES: Final = 4
_SAMPLES: Final = samples_sensor(generation((9, 0)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One comparison.

    Attributes:
        what: what was compared.
        error: error as a share of the truth.
        bar: the largest error; ``None`` if it is not judged.
    """

    what: str
    error: float
    bar: float | None

    @property
    def verdict(self) -> str:
        """The verdict in a word."""
        if self.bar is None:
            return "no bar"
        return "met" if self.error <= self.bar else "MISSED"


def findings(folder: Path) -> Iterator[Finding]:
    """Return all comparisons with the recordings below a folder.

    Raises:
        FileNotFoundError: if recordings are missing.
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
            yield from of_h200(path.name.removesuffix(".json.gz"), json.load(file))


def of_h200(name: str, recording: Mapping[str, Sequence[Sequence[float]]]) -> Iterator[Finding]:
    """Return the comparisons of one recording: the whole, its parts, the effect of its stamps."""
    samples, ticks, edges = _in_si(recording)
    compared = samples_and_counter(samples, ticks)
    found = compared.whole
    assert found.energy_j is not None
    stated = f" (states {found.resolution_j / found.energy_j:.1%})"
    what = f"H200, samples against counter, {name}"
    yield Finding(what=what + stated, error=abs(compared.error), bar=COUNTER_BAR)
    parts = compared.errors_of_spans
    span = f", spans of 3 s ({parts.min():+.1%} to {parts.max():+.1%}), rms"
    yield Finding(what=what + span, error=_rms(parts), bar=None)
    if len(edges) > _FEWEST_EDGES:
        simulated = errors_at_stamps(samples[:, 0], edges, *compared.times_s[[0, -1]])
        yield Finding(what=what + ", its stamps simulated, rms", error=_rms(simulated), bar=None)


# --- RTX 3090 and meter


def meter_errors(folder: Path, field: str, *, is_loaded: bool) -> Array:
    """Return errors of random windows of 1 s, and the stated random part, (2, n), as shares.

    Both are shares of the truth, with the card's gain divided out.

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
        found = np.array([[e.energy_j, e.resolution_j] for e in energies], dtype=float).T
        ratio, stated = found / np.diff(np.interp(pairs, times_s, true_j)).ravel()
        shares.append(np.array([np.abs(ratio / ratio[0] - 1.0), stated / ratio[0]])[:, 1:])
    return np.concatenate(shares, axis=1)


def _polled(times_s: Array, power_w: Array, seed: int) -> Array:
    """Return the rows that polling would have seen, (n, 2), of rows that are 7 ms apart."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Samples compared with a counter.

    Attributes:
        times_s: times of the counter's ticks.
        rises_j: rise of the counter up to each of them, since the first.
        found_j: the same from the samples alone.
        whole: energy of the samples from the first to the last tick.
    """

    times_s: Array
    rises_j: Array
    found_j: Array
    whole: Energy

    @property
    def error(self) -> float:
        """Error from the first to the last tick, as a share of the counter's rise."""
        return float(self.found_j[-1] / self.rises_j[-1] - 1.0)

    @property
    def errors_of_spans(self) -> Array:
        """The same for each span of 3 s between two ticks; spans overlap."""
        rises_j = self.rises_j[_SPAN_TICKS:] - self.rises_j[:-_SPAN_TICKS]
        return (self.found_j[_SPAN_TICKS:] - self.found_j[:-_SPAN_TICKS]) / rises_j - 1.0


def samples_and_counter(samples: Array, ticks: Array) -> Compared:
    """Return the energy of the samples alone and the rise of the counter, at each of its ticks.

    Args:
        samples: (n, 2), s and W.
        ticks: (m, 2), s at which a new value was seen, and that value in J.

    Raises:
        ValueError: if no regular clock agrees with the ticks.
    """
    curve = _curve(_SAMPLES, samples)
    assert curve.newest_s is not None
    clock, numbers = TickClock(), np.rint((ticks[:, 0] - ticks[0, 0]) / _TICK_S).astype(int)
    for number, seen_s in zip(numbers, ticks[:, 0], strict=True):
        if not clock.see(int(number), seen_s - _SEEN_AFTER_S, seen_s):
            raise ValueError(f"tick {number}, seen at {seen_s:.3f} s, keeps no regular clock")
    times_s = np.array([np.mean(clock.span(int(number))) for number in numbers])
    times_s = times_s[times_s <= curve.newest_s]
    energies = [curve.energy(times_s[0], t_s) for t_s in times_s[1:]]
    return Compared(
        times_s=times_s,
        rises_j=ticks[: len(times_s), 1] - ticks[0, 1],
        found_j=np.array([0.0, *(energy.energy_j for energy in energies)], dtype=float),
        whole=energies[-1],
    )


def errors_at_stamps(stamps_s: Array, edges: Array, start_s: float, end_s: float) -> Array:
    """Return errors of the samples, as shares, at given stamps under a load whose energy is known.

    The load is a square wave of the median period and duty cycle of the recorded one, at many
    phases; the samples see it through the response of the sensor.

    Args:
        stamps_s: times of the samples.
        edges: (k, 2), s, and 1 where the load starts or 0 where it ends.
        start_s: start of the energy that is compared.
        end_s: its end.
    """
    starts_s, ends_s = (edges[edges[:, 1] == kind, 0] for kind in (1.0, 0.0))
    period_s = float(np.median(np.diff(starts_s)))
    on_s = float(np.median(ends_s[: len(starts_s)] - starts_s[: len(ends_s)]))
    errors = []
    for phase_s in np.arange(_PHASES) / _PHASES * period_s:
        load = Square(
            low_w=_SQUARE_W[0],
            high_w=_SQUARE_W[1],
            period_s=period_s,
            duty=on_s / period_s,
            phase_s=float(phase_s),
        )
        curve = _curve(_SAMPLES, np.column_stack([stamps_s, _seen_w(load, stamps_s)]))
        found_j = curve.energy(start_s, end_s).energy_j
        assert found_j is not None
        errors.append(found_j / load.energy_j(start_s, end_s) - 1.0)
    return np.array(errors)


def _seen_w(load: Square, stamps_s: Array) -> Array:
    """Return a square wave behind the lag and the first-order response of the samples, settled."""
    assert _SAMPLES.response_s
    on_s, off_s = load.duty * load.period_s, (1.0 - load.duty) * load.period_s
    kept_on, kept_off = np.exp(-np.array([on_s, off_s]) / _SAMPLES.response_s)
    rise_w = load.high_w - load.low_w
    top_w = rise_w * (1.0 - kept_on) / (1.0 - kept_on * kept_off)
    since_s = np.mod(stamps_s - _SAMPLES.lag_s - load.phase_s, load.period_s)
    rising_w = rise_w - (rise_w - top_w * kept_off) * np.exp(-since_s / _SAMPLES.response_s)
    falling_w = top_w * np.exp(-(since_s - on_s) / _SAMPLES.response_s)
    return load.low_w + np.where(since_s < on_s, rising_w, falling_w)


def _rms(errors: Array) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def _in_si(recording: Mapping[str, Sequence[Sequence[float]]]) -> tuple[Array, Array, Array]:
    """Return samples, ticks and edges, with times in s after the first sample."""
    zero_us = recording["samples"][0][0]
    samples = [((unix_us - zero_us) / 1e6, mw / 1e3) for unix_us, mw in recording["samples"]]
    ticks = [(unix_s - zero_us / 1e6, mj / 1e3) for unix_s, mj in recording["counter"]]
    edges = [(unix_s - zero_us / 1e6, kind) for unix_s, kind in recording["edges"]]
    return np.array(samples), np.array(ticks), np.array(edges)


def _curve(sensor: Sensor, readings: Array) -> EnergyCurve:
    channel = Channel(device=_DEVICE, quantity="power", kind="gauge", sensor=sensor)
    curve = EnergyCurve([channel])
    curve.add([Reading(channel, t_s, power_w) for t_s, power_w in readings.tolist()])
    curve.finish()
    return curve
