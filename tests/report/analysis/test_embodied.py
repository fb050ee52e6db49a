"""The share of embodied emissions is that of the time."""

import pytest

from energy_callbacks.report import Embodied


def test_the_share_is_time_over_lifetime() -> None:
    """One day of four years is 1 / 1461."""
    assert Embodied(kg=1461.0, lifetime_years=4.0).share_kg(86400.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("kg", "years", "message"),
    [(-1.0, 4.0, "must not be negative"), (1.0, 0.0, "positive"), (float("nan"), 1.0, "negative")],
)
def test_numbers_out_of_range(kg: float, years: float, message: str) -> None:
    """Wrong numbers are refused at construction."""
    with pytest.raises(ValueError, match=message):
        Embodied(kg=kg, lifetime_years=years)
