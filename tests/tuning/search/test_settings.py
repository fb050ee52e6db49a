"""The settings of a search for a batch size."""

import math

import pytest

from energy_callbacks.tuning.search.settings import SearchSettings


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"objective": "fastest"}, "objective must be one of knee, .* got 'fastest'"),
        ({"objective": 1.5}, "weight of energy from 0 to 1, got 1.5"),
        ({"objective": True}, "got True"),
        ({"min_size": 0}, "min_size must be a whole number of at least 1, got 0"),
        ({"max_trials": 2.5}, "max_trials must be a whole number of at least 1, or None, got 2.5"),
        ({"start_size": 0}, "start_size .* or None"),
        ({"memory_bytes": -1}, "memory_bytes .* or None"),
        ({"memory_margin": 1.0}, "memory_margin must be 0 or more and below 1, got 1.0"),
        ({"memory_margin": math.nan}, "memory_margin"),
        ({"knee_share": 0.0}, "knee_share must be above 0"),
        ({"max_s": 0.0}, "max_s must be a positive number of seconds, got 0.0"),
        ({"min_size": 9, "max_size": 8}, "min_size=9, max_size=8.*widen the bounds"),
        ({"multiple_of": 24, "powers_of_two": True}, "multiple_of=24, powers_of_two=True"),
    ],
)
def test_wrong_settings_are_refused_at_once(changed, said):
    """The message names the setting, the value and the remedy."""
    with pytest.raises(ValueError, match=said):
        SearchSettings(**changed)


def test_powers_of_two_is_a_switch():
    """A number is not accepted."""
    with pytest.raises(TypeError, match="powers_of_two must be True or False, got 2"):
        SearchSettings(powers_of_two=2)


def test_settings_count_the_sizes():
    """Sizes are multiples from the minimum on; powers of two must be multiples too."""
    assert list(SearchSettings(min_size=9, max_size=33, multiple_of=8).sizes) == [16, 24, 32]
    powers = SearchSettings(min_size=9, max_size=64, multiple_of=4, powers_of_two=True)
    assert list(powers.sizes) == [16, 32, 64]
    assert list(SearchSettings(min_size=9, max_size=33).sizes) == [16, 24, 32]
    assert list(SearchSettings(min_size=9, max_size=12).sizes) == [9, 10, 11, 12]
    assert list(SearchSettings(divides=12).sizes) == [1, 2, 3, 4, 6, 12]
