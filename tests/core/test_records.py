"""The shared records of the package."""

import copy
import dataclasses
import pickle

import pytest

from energy_callbacks.core import records
from energy_callbacks.core.records import Channel, Device, Energy, Peak, Reading, Sensor

SENSOR = Sensor(name="nvmlDeviceGetSamples", period_s=0.02)
DEVICE = Device(key="gpu0", kind="gpu", scope="gpu", name="GPU")
CHANNEL = Channel(device=DEVICE, quantity="power", kind="gauge", sensor=SENSOR)
PEAK = Peak(flops_per_s=989e12, bytes_per_s=3.35e12, source="data sheet")
ALL = [SENSOR, DEVICE, PEAK, CHANNEL, Reading(CHANNEL, 1.0, 2.0), Energy(energy_j=1.0)]


@pytest.mark.parametrize("record", ALL, ids=lambda record: type(record).__name__)
def test_records_are_values(record: object) -> None:
    """A record cannot be changed, is equal to its copy, hashes like it, and travels in a pickle."""
    first = dataclasses.fields(record)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, first, "other")
    for twin in (copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert twin == record
        assert hash(twin) == hash(record)


def test_every_record_has_been_looked_at() -> None:
    """The list above contains all records."""
    kinds = {k for k in vars(records).values() if dataclasses.is_dataclass(k)}
    assert kinds == {type(record) for record in ALL}


def test_the_parts_of_the_interval_add_in_quadrature() -> None:
    """30 J from edges and 1.96 * 20.408 = 40 J at random are 50 J; 65 J with a bound of 41.5 J."""
    energy = Energy(energy_j=100.0, stderr_j=40.0 / 1.96, edge_j=30.0, systematic_j=41.533)
    assert energy.resolution_j == pytest.approx(50.0)
    assert energy.error_j == pytest.approx(65.0, rel=1e-4)


def test_unknown_energy_claims_nothing() -> None:
    """Unknown energy has no method, no coverage and no error."""
    unknown = Energy(energy_j=None)
    assert (unknown.method, unknown.coverage, unknown.error_j) == ("none", 0.0, 0.0)


@pytest.mark.parametrize(
    ("energy", "is_resolved", "text"),
    [
        (Energy(energy_j=1234.5, stderr_j=10.0, systematic_j=5.0), True, "1234.5 J ± 20 J"),
        (Energy(energy_j=10.0, stderr_j=2.5), True, "10 J ± 4.9 J"),
        (Energy(energy_j=10.0, stderr_j=3.0), False, "< 15.9 J (too short to measure)"),
        (Energy(energy_j=10.0, systematic_j=10.0), True, "10 J ± 10 J"),
        (Energy(energy_j=10.0, edge_j=5.0), True, "10 J ± 5 J"),
        (Energy(energy_j=10.0, edge_j=6.0), False, "< 16 J (too short to measure)"),
        (Energy(energy_j=10.0, stderr_j=2.0, edge_j=4.0), False, "< 15.6 J (too short to measure)"),
        (Energy(energy_j=0.0), True, "0 J ± 0 J"),
        (Energy(energy_j=None), False, "not known"),
    ],
)
def test_a_window_too_short_says_so(energy: Energy, is_resolved: bool, text: str) -> None:
    """If noise and edges exceed one half, only a bound is shown; systematic errors may be more."""
    assert energy.is_resolved == is_resolved
    assert str(energy) == text
