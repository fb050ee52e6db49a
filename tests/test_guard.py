"""A bug of ours is one warning and the end of measuring."""

import pytest

from energy_callbacks.guard import harmless


class Owner:
    def __init__(self) -> None:
        self.messages: list[str] = []

    def abandon(self, message: str) -> None:
        self.messages.append(message)

    @harmless
    def divide(self, by: float) -> float:
        return 1.0 / by

    @harmless
    def interrupt(self) -> None:
        raise KeyboardInterrupt


def test_a_result_passes_through() -> None:
    """What works is not touched."""
    owner = Owner()
    assert owner.divide(2.0) == 0.5
    assert owner.messages == []


def test_an_exception_becomes_none_and_the_owner_gives_up() -> None:
    """The caller gets None; the owner is told once which method failed."""
    owner = Owner()
    assert owner.divide(0.0) is None
    assert len(owner.messages) == 1
    assert "divide" in owner.messages[0]


def test_ctrl_c_passes_through() -> None:
    """KeyboardInterrupt is the user's, not a bug of ours."""
    with pytest.raises(KeyboardInterrupt):
        Owner().interrupt()
