"""Simulates a training whose validations have a known energy, and measures it.

A training repeats the phases ``train`` and ``validation`` between a short phase ``idle`` at the
start and one at the end. The power of the device changes at the device's edges, which trail the
edges that the host reports. The true energy of a phase is that between the device's edges.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from energy_callbacks.accounting.device_edges import DeviceEdges
from energy_callbacks.accounting.metrics.phase_energy import PhaseEnergy
from energy_callbacks.accounting.phases import PhaseSpan
from energy_callbacks.core.records import Device, Energy
from energy_callbacks.sensing.timeline import Timeline
from tests.benchmarks.common.power_signal import Array, PowerSignal
from tests.benchmarks.common.sensor_models import CARD_MODELS, Random, batches

Load = Literal["flat", "staircase"]
# Power in the phases, W; in each run it differs from these by up to _LEVEL_SPREAD.
LEVELS_W: Final = {"idle": 90.0, "train": 400.0, "validation": 100.0}
_LEVEL_SPREAD: Final = 0.1
_STAIRS: Final = 0.2  # amplitude of a staircase, as a share of the level
# The host enters a phase up to this long after the edge that it reports, s.
_ENTRY_S: Final = 0.0003
# A jittered delay differs from its mean by up to this share of the mean and up to this time, s,
# but by at most this share of a validation, so that the edges keep their order.
_DELAY_SHARE: Final = 0.25
_DELAY_S: Final = 0.002
_DELAY_SHARE_OF_PHASE: Final = 0.25
# Events are off by at most this, s (docs/h200.md).
_EVENT_ERROR_S: Final = 0.0003
_MARGIN_S: Final = 4.0  # the signal extends beyond the readings by this
_START_S: Final = 1000.0
_BATCH_S: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCell:
    """Conditions of a training.

    Attributes:
        sensor: one of ``CARD_MODELS``.
        validation_s: mean length of a validation.
        repeats: number of validations.
        load: whether power is constant in a phase, or a staircase around its level.
        delay_s: mean time by which the device's edges trail those of the host.
        is_delay_jittered: whether the delay differs from edge to edge.
        length_spread: bound of the deviation of phase lengths, as a share.
        share: share of the time that validations take.
        stair_s: time between two steps of the staircase.
        levels_w: power in each phase.
        is_dated: whether CUDA events measure the device's edges.
    """

    sensor: str
    validation_s: float
    repeats: int
    load: Load = "flat"
    delay_s: float = 0.0
    is_delay_jittered: bool = False
    length_spread: float = 0.0
    share: float = 0.25
    stair_s: float = 0.06
    levels_w: tuple[tuple[str, float], ...] = tuple(LEVELS_W.items())
    is_dated: bool = False

    @property
    def name(self) -> str:
        """The conditions as text, unique in a design."""
        jitter = " jittered" if self.is_delay_jittered else ""
        return (
            f"{self.sensor}, {1e3 * self.validation_s:g} ms x {self.repeats}, {self.share:.0%}, "
            f"{self.load}, delay {1e3 * self.delay_s:g} ms{jitter}, "
            f"lengths +-{self.length_spread:.0%}{', events' if self.is_dated else ''}"
        )

    @property
    def train_s(self) -> float:
        """Mean length of a phase ``train``."""
        return self.validation_s * (1.0 - self.share) / self.share

    @property
    def duration_s(self) -> float:
        """Mean duration of all phases ``train`` and ``validation``."""
        return self.repeats * self.validation_s / self.share

    @property
    def is_identified(self) -> bool:
        """Whether levels and delay can be determined, so that the width of intervals is judged."""
        shortest_s = min(self.validation_s, self.train_s)
        is_seen = shortest_s >= CARD_MODELS[self.sensor].period_s
        return self.repeats >= 10 and (is_seen or self.is_dated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A simulated training.

    Attributes:
        power: power of the device.
        spans: phases as the host reports them.
        device_edges_s: edges of the phases on the device, (number of spans + 1,).
    """

    power: PowerSignal
    spans: tuple[PhaseSpan, ...]
    device_edges_s: Array

    def true_j(self, phase: str) -> float:
        """Return the energy of a phase between the device's edges."""
        is_in = np.array([span.name == phase for span in self.spans])
        starts_s, ends_s = self.device_edges_s[:-1][is_in], self.device_edges_s[1:][is_in]
        return self.power.energy_j(starts_s, ends_s)


def training(cell: PhaseCell, random: Random) -> Training:
    """Draw a training under the conditions of a cell."""
    names = ["idle", *["train", "validation"] * cell.repeats, "idle"]
    lengths_s = np.array([cell.train_s, cell.validation_s] * cell.repeats)
    lengths_s *= 1.0 + random.uniform(-cell.length_spread, cell.length_spread, len(lengths_s))
    ends_s = random.uniform(1.0, 2.0), random.uniform(0.5, 1.5)
    edges_s = _START_S + np.cumsum([0.0, ends_s[0], *lengths_s, ends_s[1]])
    device_s = edges_s + _delays_s(cell, random, len(edges_s))
    reported_s = edges_s + random.uniform(0.0, _ENTRY_S, len(edges_s))
    spans = tuple(
        PhaseSpan(name=name, start_s=start_s, end_s=end_s)
        for name, start_s, end_s in zip(
            names, reported_s[:-1].tolist(), reported_s[1:].tolist(), strict=True
        )
    )
    return Training(
        power=_power(cell, random, names, device_s), spans=spans, device_edges_s=device_s
    )


def _delays_s(cell: PhaseCell, random: Random, count: int) -> Array:
    if not cell.is_delay_jittered:
        return np.full(count, cell.delay_s)
    spread_s = min(
        _DELAY_SHARE * cell.delay_s + _DELAY_S,
        _DELAY_SHARE_OF_PHASE * min(cell.validation_s, cell.train_s),
    )
    return max(cell.delay_s, spread_s) + random.uniform(-spread_s, spread_s, count)


def _power(cell: PhaseCell, random: Random, names: list[str], device_s: Array) -> PowerSignal:
    levels_w = {
        name: level_w * random.uniform(1.0 - _LEVEL_SPREAD, 1.0 + _LEVEL_SPREAD)
        for name, level_w in cell.levels_w
    }
    of_phase_w = np.array([levels_w[name] for name in names])
    first_s, last_s = device_s[0] - _MARGIN_S, device_s[-1] + _MARGIN_S
    edges_s = np.concatenate([[first_s], device_s[1:-1], [last_s]])
    if cell.load == "flat":
        return PowerSignal(edges_s, of_phase_w)
    stairs_s = np.arange(first_s - random.uniform(0.0, cell.stair_s), last_s, cell.stair_s)
    heights = 1.0 + random.uniform(-_STAIRS, _STAIRS, len(stairs_s))
    all_s = np.unique(np.concatenate([edges_s, stairs_s[1:]]))
    middles_s = (all_s[:-1] + all_s[1:]) / 2.0
    phase = np.searchsorted(edges_s, middles_s) - 1
    stair = np.searchsorted(stairs_s, middles_s) - 1
    return PowerSignal(all_s, of_phase_w[phase] * heights[stair])


class _Events(DeviceEdges):
    """The device's edges, as CUDA events measure them."""

    def __init__(self, drawn: Training, random: Random) -> None:
        host_s = [span.start_s for span in drawn.spans]
        errors_s = random.uniform(-_EVENT_ERROR_S, _EVENT_ERROR_S, len(host_s))
        device_s = np.maximum(drawn.device_edges_s[:-1] + errors_s, host_s)
        self._delays_s = dict(zip(host_s, (device_s - host_s).tolist(), strict=True))

    def are_of(self, device: Device) -> bool:
        return True

    def delay_s(self, t_s: float) -> float:
        return self._delays_s[t_s]

    def forget(self, until_s: float) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the package finds in the readings of a card.

    Attributes:
        validation: energy of all validations.
        sum_j: sum of the energies of all phases.
        whole_j: energy from the first to the last moment of the training, in one query.
    """

    validation: Energy
    sum_j: float
    whole_j: float


def measured(cell: PhaseCell, drawn: Training, random: Random, gain: float = 1.0) -> Measured:
    """Measure a training on a simulated card."""
    start_s, end_s = drawn.spans[0].start_s, drawn.spans[-1].end_s
    streams = CARD_MODELS[cell.sensor].streams(drawn.power, start_s, end_s, random, gain)
    timeline = Timeline()
    timeline.register(stream.channel for stream in streams)
    phases = PhaseEnergy(timeline, _Events(drawn, random) if cell.is_dated else None)
    waiting = iter(drawn.spans)
    ahead = next(waiting, None)
    for now_s, readings in batches(streams, _BATCH_S):
        while ahead is not None and ahead.end_s <= now_s:
            timeline.pin(ahead.end_s)
            phases.add(ahead)
            ahead = next(waiting, None)
        timeline.extend(readings)
        settled_s = timeline.settled_s(now_s)
        if settled_s is not None:
            phases.update(settled_s)
    for span in _rest(ahead, waiting):
        phases.add(span)
    timeline.finish()
    phases.update(end_s, is_final=True)
    key = streams[0].channel.device.key
    found = phases.energies()[key]
    return Measured(
        validation=found["validation"],
        sum_j=math.fsum(energy.energy_j or 0.0 for energy in found.values()),
        whole_j=timeline.energy(key, start_s, end_s).energy_j or 0.0,
    )


def _rest(ahead: PhaseSpan | None, waiting: Iterator[PhaseSpan]) -> Iterator[PhaseSpan]:
    if ahead is not None:
        yield ahead
    yield from waiting
