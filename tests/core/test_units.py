"""Conversions against powers of ten and two written out."""

import doctest
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from energy_callbacks.core import units

EXPECTED = {
    "watts_from_milliwatts": (250_000, 250.0),
    "milliwatts": (250.5, 250_500),
    "joules_from_millijoules": (1500, 1.5),
    "joules_from_microjoules": (2_500_000, 2.5),
    "seconds_from_milliseconds": (20, 0.02),
    "seconds_from_microseconds": (20_000, 0.02),
    "seconds_from_nanoseconds": (500_000_000, 0.5),
    "microseconds": (0.02, 20_000.0),
    "microjoules": (0.5, 500_000.0),
    "hours": (5400, 1.5),
    "hertz_from_megahertz": (1980, 1.98e9),
    "megahertz": (1.98e9, 1980.0),
    "watt_hours": (7200, 2.0),
    "kilowatt_hours": (3_600_000, 1.0),
    "joules_from_kilowatt_hours": (0.5, 1_800_000.0),
    "grams": (0.25, 250.0),
    "kilograms_from_grams": (250.0, 0.25),
    "gibibytes": (2**31, 2.0),
    "mebibytes": (3 * 1024 * 1024, 3.0),
    "bytes_from_mebibytes": (3, 3 * 1024 * 1024),
}


def functions() -> dict[str, object]:
    """Every conversion of the module."""
    return {
        name: function
        for name, function in vars(units).items()
        if inspect.isfunction(function) and not name.startswith("_")
    }


def test_every_conversion_has_an_example_here() -> None:
    """A conversion that is added must be added here too, with a figure worked out by hand."""
    assert set(functions()) == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_conversion_gives_the_figure_worked_out_by_hand(name: str) -> None:
    """Each conversion gives its figure, as a float."""
    value, expected = EXPECTED[name]
    found = getattr(units, name)(value)
    assert found == pytest.approx(expected, rel=1e-15)
    assert isinstance(found, float)


@given(value=st.floats(-1e12, 1e12), factor=st.floats(-1e3, 1e3))
def test_conversions_are_linear_and_keep_zero(value: float, factor: float) -> None:
    """Conversions are linear: no clipping, rounding or offset."""
    for name in EXPECTED:
        convert = getattr(units, name)
        expected = pytest.approx(factor * convert(value), rel=1e-12, abs=1e-300)
        assert convert(0.0) == 0.0, name
        assert convert(factor * value) == expected, name


@given(value=st.floats(1e-3, 1e12))
def test_there_and_back_is_the_same(value: float) -> None:
    """Pairs of conversions undo each other."""
    assert units.megahertz(units.hertz_from_megahertz(value)) == pytest.approx(value, rel=1e-12)
    assert units.kilograms_from_grams(units.grams(value)) == pytest.approx(value, rel=1e-12)
    assert units.watt_hours(value) == pytest.approx(1e3 * units.kilowatt_hours(value), rel=1e-12)


def test_the_examples_in_the_docstrings_are_true() -> None:
    """The examples in the docstrings are correct."""
    failed, attempted = doctest.testmod(units)
    assert failed == 0
    assert attempted >= len(EXPECTED)
