"""Texts of environment variables become values; texts of the wrong form stay as they are."""

from typing import Any

import pytest

from energy_callbacks.core.settings import texts


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("True", True), ("YES", True), ("on", True), ("0", False), ("false", False),
     ("No", False), ("off", False), ("maybe", "maybe"), ("2", "2")],
)  # fmt: skip
def test_booleans(text: str, value: Any) -> None:
    """The usual words, in any case."""
    assert texts.boolean(text) is value or texts.boolean(text) == value == text


def test_lists_and_pairs() -> None:
    """Devices and tags have commas; a tag may contain an equals sign."""
    assert texts.devices("3") == [3]
    assert texts.devices("0,1 , MIG-5a") == [0, 1, "MIG-5a"]
    assert texts.devices("auto") == "auto"
    assert texts.tags("a=b=c,d=") == {"a": "b=c", "d": ""}
    assert texts.tags("vision") == "vision"


def test_numbers_and_paths() -> None:
    """A text that is not a number is a path, or is refused by the setting."""
    assert texts.number("1e3") == 1000.0
    assert texts.number("30 ct") == "30 ct"
