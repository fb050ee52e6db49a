"""Computes the figures that are logged with the loss; ``tags.py`` defines their names and units."""

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from energy_callbacks.accounting.journal.previous_attempts import PreviousAttempts
from energy_callbacks.accounting.measured_lines import mean, mean_power_w
from energy_callbacks.accounting.metrics import pooling
from energy_callbacks.accounting.metrics.budget import EmissionsKg, Used
from energy_callbacks.accounting.metrics.energy_sums import interval_j, total
from energy_callbacks.accounting.metrics.newest_energy import newest_energy
from energy_callbacks.accounting.metrics.step_counts import StepCounts
from energy_callbacks.accounting.recorder import JournalRecorder
from energy_callbacks.core.records import Energy, Quantity
from energy_callbacks.core.units import gibibytes, grams, megahertz, watt_hours
from energy_callbacks.sensing.scopes import SCOPES

# Maximum age of a value of a gauge, such as the temperature, s. Throttled time is read every
# 4.8 s, other gauges are read every 1.6 s.
_STALE_S: Final = 10.0
# If figures were requested less than this number of seconds ago, the next figures are computed
# before they are requested. Otherwise they are computed at the next request, which then takes a
# millisecond.
_OFTEN_S: Final = 10.0
# Maximum number of rows whose random errors ``short_span`` checks; the newest are kept.
_ROWS: Final = 1000

Scalars = dict[str, float]
# Tags of totals since the start of the run.
_TOTALS: Final = (
    *(f"energy/{scope}_wh" for scope in ("gpu", "host", "total")),
    *(f"emissions/total_g{suffix}" for suffix in ("", "_lo", "_hi")),
)


def _total_gib(sizes_bytes: Sequence[float]) -> float:
    return gibibytes(sum(sizes_bytes))


# For each tag: the quantity that is read; which value of each device is used (the newest value, the
# mean over the span, or the rate of a counter over the span); and the function that combines the
# values of all devices.
_Gauge = tuple[Quantity, Literal["newest", "mean", "rate"], Callable[[Sequence[float]], float]]
_GAUGES: Final[dict[str, _Gauge]] = {
    "memory/device_used_gib": ("memory_used", "newest", _total_gib),
    "memory/peak_allocated_gib": ("peak_allocated", "newest", _total_gib),
    "memory/host_rss_gib": ("rss", "newest", _total_gib),
    "gpu/utilisation": ("utilisation", "mean", mean),
    "gpu/sm_active": ("sm_active", "mean", mean),
    "gpu/sm_occupancy": ("sm_occupancy", "mean", mean),
    "gpu/tensor_active": ("tensor_active", "mean", mean),
    "gpu/dram_active": ("dram_active", "mean", mean),
    "gpu/memory_utilisation": ("memory_utilisation", "mean", mean),
    "gpu/temperature_c": ("temperature", "newest", max),
    "gpu/sm_clock_mhz": ("clock", "mean", lambda clocks: megahertz(mean(clocks))),
    "gpu/memory_clock_mhz": ("memory_clock", "mean", lambda clocks: megahertz(mean(clocks))),
    "gpu/power_limit_w": ("power_limit", "newest", mean),
    "gpu/throttled_fraction": ("throttled", "rate", lambda rates: min(max(rates), 1.0)),
}


@dataclass(frozen=True, slots=True)
class ReadyScalars:
    """Figures that are ready to be logged.

    Attributes:
        tally: step counts at the last step that ended by ``end_s``.
        end_s: monotonic time up to which the figures are computed.
        values: figures by tag.
        pooled: random share (see ``pooling``) of the energy per step, and length in s of the span
            over which steps were pooled; ``None`` if there are no new figures per step.
    """

    tally: StepCounts
    end_s: float
    values: Scalars
    pooled: tuple[float, float] | None


class ScalarBoard:
    """Computes the figures that the training thread logs, usually before they are requested.

    ``update`` runs on the journal's thread. ``take`` runs on the training thread and needs a few
    microseconds, or a millisecond after ten seconds without a request. Each ``take`` with new
    figures begins a new span of time. Figures per step, sample and token also use steps before this
    span, if that is needed to reduce their random error.

    Args:
        recorder: provides readings of this host, and steps and phases of this process.
        earlier: the energy of earlier attempts of the run; empty for a new run.
        samples_scale: number of processes of the run on this host; each is assumed to consume as
            many samples as this process.
        emissions_kg: function from energy to kg CO2e with an interval.

    Attributes:
        used_j: energy in J by scope (``scopes.SCOPES``), of the devices that this process
            measures, including earlier attempts. A scope whose energy is unknown is absent.
        used: total energy in all attempts of the run, and their mean power over the span
            of the newest figures; ``None`` before the first figures.
    """

    def __init__(
        self,
        recorder: JournalRecorder,
        *,
        earlier: PreviousAttempts,
        samples_scale: float,
        emissions_kg: EmissionsKg,
    ) -> None:
        self._timeline = recorder.timeline
        self.recorder = recorder
        self.start_s = recorder.start_s
        self.earlier = earlier
        self.used_j = dict(self.earlier.energy_j)
        self.used: Used | None = None
        self._from = (StepCounts(t_s=self.start_s), self.start_s)
        self._ready: ReadyScalars | None = None
        self._taken: Scalars = {}
        self._computed_for: tuple[tuple[StepCounts, float], StepCounts, float] | None = None
        self._samples_scale = samples_scale
        self._energies: dict[tuple[str, float, float], Energy] = {}
        self._recent = pooling.RecentStepCounts()
        self._rows: deque[tuple[float, float]] = deque(maxlen=_ROWS)
        self.emissions_kg = emissions_kg
        self._renewing = threading.Lock()
        self._is_due = self._is_final = self._extrapolates = False
        self._asked_s = -math.inf

    def take(self) -> Scalars:
        """Return the newest figures, and begin a new span of time at the end of their span.

        Without new readings, the last figures are returned again. Before the first readings, the
        result is empty. A total is never less than before: if later readings lower it, for example
        because they are those of a counter, the previous value is returned until it is exceeded.
        """
        self.ask()
        ready = self._ready
        if ready is None:
            return {}
        if ready.pooled is not None and ready.tally.steps > self._from[0].steps:
            self._rows.append(ready.pooled)
        self._from = (ready.tally, ready.end_s)
        values = dict(ready.values)
        for tag in _TOTALS:
            if tag in values:
                values[tag] = self._taken[tag] = max(values[tag], self._taken.get(tag, 0.0))
        return values

    def begin_span(self) -> None:
        """Begin a new span of time now; figures before it are not returned again."""
        self._from = (self.recorder.steps.tally, self.recorder.seen_s)
        self._ready = None

    def short_span(self) -> tuple[str, str] | None:
        """Return a warning and advice for the report; ``None`` if random errors were small."""
        return pooling.short_span(self._rows)

    def update(self, *, is_final: bool = False, extrapolates: bool = False) -> None:
        """Note that there are new readings, and compute figures if a request is expected soon.

        Args:
            is_final: whether the attempt has ended. If so, the figures are computed even if no
                request is expected, and their span ends at the newest readings, not at the last
                step.
            extrapolates: whether some readings up to the end are still missing; energies are then
                extrapolated.
        """
        self._extrapolates = extrapolates
        self._recent.add(self.recorder.steps.tally)
        # ``_is_due`` is set last: once it is true, another thread may read ``_is_final``.
        self._is_final, self._is_due = is_final, True
        if is_final or self.recorder.seen_s - self._asked_s < _OFTEN_S:
            self._renew()

    def ask(self) -> None:
        """Compute ``used``, ``used_j`` and the figures, unless done since the last ``update``."""
        self._asked_s = self.recorder.seen_s
        self._renew()

    def _renew(self) -> None:
        """Compute the figures if this has not been done since the last ``update``.

        If another thread is computing the figures, return without waiting.
        """
        if self._is_due and self._renewing.acquire(blocking=False):
            try:
                self._is_due = False
                self._compute(is_final=self._is_final)
            finally:
                self._renewing.release()

    def _compute(self, *, is_final: bool) -> None:
        tally, end_s = self.recorder.steps.tally, self.recorder.seen_s
        begin = self._from
        before, start_s = begin
        if tally.steps > before.steps and not is_final:
            end_s = tally.t_s
        if end_s <= start_s or self._computed_for == (begin, tally, end_s):
            return
        self._computed_for = (begin, tally, end_s)
        values, pooled = self._figures_of_time(start_s, end_s), None
        if tally.steps > before.steps:
            since, share = self._pooled(before, tally)
            found = self._efficiency(since, tally)
            pooled = (share, tally.t_s - since.t_s) if found else None
            values |= self._throughput(before, tally) | found
        elif self._ready is not None:
            # No step has ended in this span, so the last figures of training steps are still valid.
            kept = ("efficiency/", "throughput/")
            values = {t: v for t, v in self._ready.values.items() if t.startswith(kept)} | values
        if self._from is begin:  # otherwise ``take`` has begun a new span meanwhile
            self._ready = ReadyScalars(tally, end_s, values, pooled)

    def whole(self) -> Scalars:
        """Return the figures from the attempt's start to the newest readings.

        Energies and emissions are totals over all attempts of the run.
        """
        tally, end_s = self.recorder.steps.tally, self.recorder.seen_s
        if end_s <= self.start_s:
            return {}
        values = self._figures_of_time(self.start_s, end_s)
        if tally.steps:
            start = StepCounts(t_s=self.start_s)
            values |= self._throughput(start, tally) | self._efficiency(start, tally)
        return values

    def total_j(self, start_s: float, end_s: float) -> float | None:
        """Return the total energy between two times, J; ``None`` without readings."""
        return self._scope("total", [(start_s, end_s)]).energy_j

    def trained(self, before: StepCounts, now: StepCounts) -> tuple[float | None, float]:
        """Return total energy (J) and time (s) of the training between two tallies."""
        spans = self._trained_s(before, now)
        return self._scope("total", spans).energy_j, sum(end - start for start, end in spans)

    def _energy(self, key: str, start_s: float, end_s: float) -> Energy:
        """Return the energy of a device between two times; cached for other figures of the span."""
        window = (key, start_s, end_s)
        found = self._energies.get(window)
        if found is None:
            if self._extrapolates:
                found = newest_energy(self._timeline, *window, now_s=end_s)
            else:
                found = self._timeline.energy(*window)
            self._energies[window] = found
        return found

    def _scope(self, scope: str, spans: Sequence[tuple[float, float]]) -> Energy:
        windows = [(key, *span) for key in self._timeline.keys(scope) for span in spans]
        return total(
            [self._energy(key, start_s, end_s) for key, start_s, end_s in windows],
            durations_s=[end_s - start_s for _, start_s, end_s in windows],
        )

    def _figures_of_time(self, start_s: float, end_s: float) -> Scalars:
        """Return the figures that do not depend on steps, and update ``used`` and ``used_j``.

        Power and gauges describe the span. Energies and emissions are totals of the run up to
        ``end_s``. ``energy/measured_fraction`` describes this attempt up to ``end_s``.
        """
        self._energies = {}
        return self._power_and_energy(start_s, end_s) | self._gauges(start_s, end_s)

    def _power_and_energy(self, start_s: float, end_s: float) -> Scalars:
        values: Scalars = {}
        for scope in ("gpu", "host"):
            _put(values, f"power/{scope}_w", self._power_w(scope, start_s, end_s))
        so_far = {scope: self._scope(scope, [(self.start_s, end_s)]) for scope in SCOPES}
        _put(values, "energy/measured_fraction", self._measured_fraction(so_far["total"], end_s))
        of_run = {s: _with_earlier(energy, self.earlier.of(s)) for s, energy in so_far.items()}
        known_j = {s: e.energy_j for s, e in of_run.items() if e.energy_j is not None}
        for scope in ("gpu", "host", "total"):
            if scope in known_j:
                values[f"energy/{scope}_wh"] = watt_hours(known_j[scope])
        self.used_j |= known_j
        power_w = self._power_w("total", start_s, end_s) or 0.0
        used_j = known_j.get("total", self.earlier.of("total"))
        self.used = Used(energy_j=used_j, power_w=power_w, seen_s=end_s)
        for suffix, kg in zip(("", "_lo", "_hi"), self.emissions_kg(of_run["total"]), strict=True):
            _put(values, f"emissions/total_g{suffix}", None if kg is None else grams(kg))
        return values

    def _power_w(self, scope: str, start_s: float, end_s: float) -> float | None:
        """Return the sum of the mean powers of a scope's devices, W; ``None`` without readings."""
        found = [
            mean_power_w(energy.energy_j, energy.coverage, end_s - start_s)
            for energy in (self._energy(key, start_s, end_s) for key in self._timeline.keys(scope))
        ]
        seen = [power_w for power_w in found if power_w is not None]
        return sum(seen) if seen else None

    def _measured_fraction(self, whole: Energy, end_s: float) -> float | None:
        if not whole.energy_j:
            return None
        measured = {d.key for d in self._timeline.devices if d.origin == "measured"}
        keys = [key for key in self._timeline.keys("total") if key in measured]
        energy = total(self._energy(key, self.start_s, end_s) for key in keys)
        return (energy.energy_j or 0.0) / whole.energy_j

    def _pooled(self, before: StepCounts, now: StepCounts) -> tuple[StepCounts, float]:
        """Return the tally from which steps are pooled, and the random share of their energy."""
        spans = self.recorder.trained(now.t_s - pooling.REACH_S, before.t_s)
        # Steps before the newest change from another phase to ``train`` are not pooled, because the
        # time in the other phase is not training.
        since_s = spans[-1].start_s if spans else before.t_s
        is_training = bool(spans) and spans[-1].end_s >= before.t_s
        earlier = self._recent.between(since_s, before) if is_training else []
        return pooling.widened(
            before, now, earlier, lambda t: pooling.random_share(self._trained_energies(t, now))
        )

    def _trained_s(self, before: StepCounts, now: StepCounts) -> list[tuple[float, float]]:
        """Return start and end of each part of a span that was in phase ``train``."""
        return [(s.start_s, s.end_s) for s in self.recorder.trained(before.t_s, now.t_s)]

    def _trained_energies(self, before: StepCounts, now: StepCounts) -> tuple[Energy, Energy]:
        """Return GPU energy and total energy of a span, without the parts in other phases."""
        spans = self._trained_s(before, now)
        train_s = sum(end - start for start, end in spans)
        gpu, whole = (
            pooling.with_ends(self._scope(scope, spans), train_s, (before, now))
            for scope in ("gpu", "total")
        )
        return gpu, whole

    def _efficiency(self, before: StepCounts, now: StepCounts) -> Scalars:
        """Return the energy per step, sample and token, in phase ``train`` between two tallies."""
        gpu, whole = self._trained_energies(before, now)
        samples, tokens = self._work(before, now)
        values: Scalars = {}
        _put_efficiency(values, "efficiency/gpu_j_per_step", gpu, now.steps - before.steps)
        _put_efficiency(values, "efficiency/gpu_j_per_sample", gpu, samples)
        _put_efficiency(values, "efficiency/gpu_j_per_token", gpu, tokens)
        _put_efficiency(values, "efficiency/total_j_per_sample", whole, samples)
        return values

    def _throughput(self, before: StepCounts, now: StepCounts) -> Scalars:
        """Return the throughput figures, in phase ``train`` between two tallies."""
        train_s = sum(end - start for start, end in self._trained_s(before, now))
        if train_s <= 0.0:
            return {}
        samples, tokens = self._work(before, now)
        values: Scalars = {}
        _put(values, "throughput/samples_per_s", samples / train_s if samples else None)
        _put(values, "throughput/tokens_per_s", tokens / train_s if tokens else None)
        if self.recorder.steps.sees_waits:
            wait_s = now.wait_s - before.wait_s
            values["throughput/data_wait_fraction"] = min(wait_s / train_s, 1.0)
        return values

    def _work(self, before: StepCounts, now: StepCounts) -> list[float | None]:
        """Return samples and tokens of all processes of this host between two tallies."""
        counts = ((before.samples, now.samples), (before.tokens, now.tokens))
        return [
            None if start is None or end is None else (end - start) * self._samples_scale
            for start, end in counts
        ]

    def _gauges(self, start_s: float, end_s: float) -> Scalars:
        values: Scalars = {}
        for tag, (quantity, which, combine) in _GAUGES.items():
            of_devices = (
                self._gauge(key, quantity, which, start_s, end_s)
                for key in self._timeline.keys_with(quantity)
            )
            if known := [value for value in of_devices if value is not None]:
                values[tag] = combine(known)
        return values

    def _gauge(
        self, key: str, quantity: Quantity, which: str, start_s: float, end_s: float
    ) -> float | None:
        """Return the value of a gauge of one device; ``None`` without a recent reading."""
        newest = self._timeline.latest(key, quantity, end_s - _STALE_S)
        if newest is None or which == "newest":
            return newest
        if which == "rate":
            return self._timeline.rate(key, quantity, start_s, end_s)
        _, values = self._timeline.readings(key, quantity, start_s, end_s)
        return mean(values) if values else newest


def _with_earlier(energy: Energy, earlier_j: float) -> Energy:
    """Add joules of earlier attempts to an energy; the relative systematic error stays the same."""
    if energy.energy_j is None or not earlier_j:
        return energy
    whole_j = earlier_j + energy.energy_j
    # This scaling of the systematic error is correct if all attempts use the same sensors.
    scale = whole_j / energy.energy_j if energy.energy_j else 1.0
    return replace(energy, energy_j=whole_j, systematic_j=energy.systematic_j * scale)


def _put(values: Scalars, tag: str, value: float | None) -> None:
    """Add a figure to ``values`` if it is known."""
    if value is not None:
        values[tag] = value


def _put_efficiency(values: Scalars, tag: str, energy: Energy, count: float | None) -> None:
    interval = interval_j(energy)
    if interval is None or not count:
        return
    for suffix, energy_j in zip(("", "_lo", "_hi"), interval, strict=True):
        values[f"{tag}{suffix}"] = energy_j / count
