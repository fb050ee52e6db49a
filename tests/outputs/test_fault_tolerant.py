"""Failures of outputs do not affect a training."""

from collections.abc import Mapping

import pytest

from energy_callbacks.outputs.fault_tolerant import FaultTolerantOutput


class Failing:
    """Fails at a given step, and when it is closed."""

    def __init__(self, fails_at: int) -> None:
        self._fails_at = fails_at
        self.steps: list[int] = []
        self.closed = 0

    def __str__(self) -> str:
        return "Failing"

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """Store a step."""
        if step == self._fails_at:
            raise OSError("disk full")
        self.steps.append(step)

    def close(self) -> None:
        """Count the call and fail."""
        self.closed += 1
        raise OSError("disk still full")


def test_an_output_that_failed_is_left_out_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Rows before the failure are written; then the output is closed and not used again."""
    failing = Failing(fails_at=2)
    output = FaultTolerantOutput(failing)
    for step in (1, 2, 3):
        output.write({"a": 1.0}, step, 0.0)
    output.close()
    assert failing.steps == [1]
    assert failing.closed == 1
    assert [r.message for r in caplog.records] == ["Failing failed and is left out from now on"]


def test_the_owner_chooses_the_words(caplog: pytest.LogCaptureFixture) -> None:
    """A failure to close is logged with the owner's message."""
    FaultTolerantOutput(Failing(fails_at=0), "no more of it").close()
    assert [r.message for r in caplog.records] == ["no more of it"]
