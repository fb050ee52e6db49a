"""Energies of the phases of trainings that were recorded on an H200 (tests/data/h200_trainings).

In these trainings the host was not far ahead of the GPU (docs/h200.md), so the energy of a phase is
that between the host's edges. Power samples every 20 ms show it.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from energy_callbacks.accounting.metrics.phase_energy import PhaseEnergy
from energy_callbacks.accounting.phases import PhaseSpan
from energy_callbacks.core.records import Channel, Energy, Reading
from energy_callbacks.sensing import recording
from energy_callbacks.sensing.timeline import Timeline

FOLDER = Path(__file__).parents[2] / "data" / "h200_trainings"
# Names of phases, as other programs would report them. A ``train`` of 6 ms is called ``short``.
NO_SHORT = {"short": "validation"}


@cache
def recorded(training: str) -> tuple[list[Channel], list[Reading]]:
    """Power samples and counter of the GPU."""
    return recording.read(FOLDER / f"{training}.readings")


def phases(training: str, names: dict[str, str]) -> Iterator[PhaseSpan]:
    """The phases of the host with other names; neighbours with the same name are one phase."""

    def name(part: tuple[str, float, float]) -> str:
        label, start_s, end_s = part
        is_short = label == "train" and end_s - start_s < 0.02
        return names.get("short" if is_short else label, label)

    for label, group in groupby(json.loads((FOLDER / f"{training}.phases.json").read_text()), name):
        same = list(group)
        yield PhaseSpan(name=label, start_s=same[0][1], end_s=same[-1][2])


def found(training: str, spans: Sequence[PhaseSpan]) -> dict[str, Energy]:
    """The energies of the phases, as for the report."""
    channels, readings = recorded(training)
    timeline = Timeline()
    timeline.register(channels)
    timeline.extend(readings)
    timeline.finish()
    energies = PhaseEnergy(timeline)
    for span in spans:
        energies.add(span)
    energies.update(spans[-1].end_s, is_final=True)
    return energies.energies()["gpu0"]


def on_host_j(training: str, spans: Sequence[PhaseSpan]) -> dict[str, float]:
    """The energies between the host's edges, from the power samples alone."""
    power = [r for r in recorded(training)[1] if r.channel.quantity == "power"]
    t_s = np.arange(spans[0].start_s, spans[-1].end_s, 1e-4)
    # A sample is a mean of the 20 ms before it.
    power_w = np.interp(t_s + 0.01, [r.t_s for r in power], [r.value for r in power])
    places = np.searchsorted([span.start_s for span in spans], t_s, side="right") - 1
    sums_j = np.bincount(places, power_w * 1e-4, len(spans))
    names = {span.name for span in spans}
    return {n: sum(j for s, j in zip(spans, sums_j, strict=True) if s.name == n) for n in names}


@pytest.mark.parametrize(
    ("training", "names"),
    [
        ("resnet", {}),
        ("resnet", {"setup": "idle"}),
        ("resnet", NO_SHORT),
        ("resnet", {"short": "train", "validation": "train"}),
        ("resnet", NO_SHORT | {"checkpoint": "train"}),
        ("keras", {}),
    ],
)
def test_intervals_contain_the_energies(training: str, names: dict[str, str]) -> None:
    """A host that starts a phase slowly is not taken for a GPU that is behind its host."""
    spans = list(phases(training, names))
    energies = found(training, spans)
    for name, true_j in on_host_j(training, spans).items():
        energy = energies[name]
        half_j = np.hypot(1.96 * energy.stderr_j, energy.edge_j) + 0.01 * true_j
        assert abs(energy.energy_j - true_j) <= half_j, name
    assert sum(e.energy_j for e in energies.values()) == pytest.approx(
        sum(on_host_j(training, spans).values()), rel=0.01
    )
