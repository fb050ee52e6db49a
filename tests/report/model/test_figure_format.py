"""Amounts of money have their currency."""

import pytest

from energy_callbacks.report.model.amounts import Cost
from energy_callbacks.report.model.figure_format import money, price


@pytest.mark.parametrize(
    ("currency", "amount", "per_kwh"),
    [("EUR", "0.420 EUR", "0.3 EUR per kWh"), (None, "0.420", "0.3 per kWh")],
)
def test_money(currency: str | None, amount: str, per_kwh: str) -> None:
    """Without a currency there is only the number; an unknown cost is no zero."""
    cost = Cost(price_per_kwh=0.3, amount=0.42, currency=currency)
    assert money(cost) == amount
    assert price(cost) == per_kwh
    assert money(None) == "not known"
