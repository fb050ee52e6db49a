"""Values that settings must not have are refused."""

import math
from typing import Any

import pytest

from energy_callbacks.core.settings.checks import check_function, check_log_every_n_steps


@pytest.mark.parametrize("value", [0, -5, 1.0, "10", True, math.nan])
def test_log_every_n_steps_is_a_whole_number_of_at_least_one(value: Any) -> None:
    """Zero, negative, fractional and textual values are refused with advice."""
    with pytest.raises(ValueError, match=r"log_every_n_steps must be a whole number.*leave it out"):
        check_log_every_n_steps(value)


@pytest.mark.parametrize("value", [None, 1, 50])
def test_log_every_n_steps_is_kept(value: int | None) -> None:
    """``None`` follows the trainer; a number from one on is kept."""
    assert check_log_every_n_steps(value) == value


def test_what_should_count_a_batch_must_be_a_function() -> None:
    """A number instead of a function is refused by name; ``None`` and functions are valid."""
    with pytest.raises(TypeError, match="batch_size_fn must be a function of a batch, got 5"):
        check_function("batch_size_fn", 5)
    assert check_function("tokens_fn", None) is None
    assert check_function("tokens_fn", len) is len
