"""Values of damaged lines raise an exception at once."""

from collections.abc import Callable
from typing import Any

import pytest

from energy_callbacks.report.collect import checks


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (checks.number, 2, 2.0),
        (checks.number, -1.5, -1.5),
        (checks.whole, 0, 0),
        (checks.whole, -3, -3),
        (checks.text, "", ""),
    ],
)
def test_a_right_value_is_returned(check: Callable[[Any], Any], value: Any, expected: Any) -> None:
    """Numbers are returned as ``float``, also whole ones."""
    assert check(value) == expected
    assert type(check(value)) is type(expected)


@pytest.mark.parametrize(
    ("check", "value"),
    [
        *((checks.number, value) for value in (None, True, "1", [1], float("nan"), 10**400)),
        *((checks.whole, value) for value in (None, False, 1.0, "1", 10**400)),
        *((checks.text, value) for value in (None, 1, b"x", ["x"])),
    ],
)
def test_a_wrong_value_is_shown(check: Callable[[Any], Any], value: Any) -> None:
    """The exception is one of those that readers of lines expect."""
    with pytest.raises(checks.INVALID, match="expected a"):
        check(value)


def test_optional_values_may_be_null_but_not_missing() -> None:
    """Each name that is not null is checked."""
    record = {"a": 1.0, "b": None, "c": "x"}
    checks.optional(checks.number, record, ["a", "b"])
    with pytest.raises(checks.INVALID, match="'x'"):
        checks.optional(checks.number, record, ["a", "b", "c"])
    with pytest.raises(checks.INVALID):
        checks.optional(checks.number, record, ["d"])


def test_lone_surrogates_are_replaced_at_every_depth() -> None:
    """The result can be encoded; all other values stay as they are."""
    value = {"\ud800": ["a\udcff", {"b": "\udfff"}], "n": [1, 2.5, None, True, "ü"]}
    assert checks.encodable(value) == {"?": ["a?", {"b": "?"}], "n": [1, 2.5, None, True, "ü"]}


@pytest.mark.parametrize("value", [10**400, [float("inf")], {"x": {"y": float("nan")}}])
def test_a_number_that_no_float_holds_is_refused(value: Any) -> None:
    """Text of JSON may have any number of digits."""
    with pytest.raises(checks.INVALID):
        checks.encodable(value)
