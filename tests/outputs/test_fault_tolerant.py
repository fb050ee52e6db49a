"""Failures of outputs do not affect a training, and an output is used again when it works again."""

import errno
from collections.abc import Mapping
from pathlib import Path

import pytest

from energy_callbacks.outputs.fault_tolerant import FaultTolerantOutput
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from energy_callbacks.testing import FakeClock


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
    """Rows before the failure are written; then the output is closed and left out for a minute."""
    failing, clock = Failing(fails_at=2), FakeClock()
    output = FaultTolerantOutput(failing, now_s=clock.monotonic_s)
    for step in (1, 2, 3):
        output.write({"a": 1.0}, step, 0.0)
    clock.advance(59.0)
    output.write({"a": 1.0}, 4, 0.0)
    output.close()
    assert failing.steps == [1]
    assert failing.closed == 1
    [record] = caplog.records
    assert record.message.startswith("energy metrics cannot be written to Failing; ")


def test_an_output_is_tried_again_after_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A server that was gone for a moment gets rows again; a second failure is not logged."""
    failing, clock = Failing(fails_at=2), FakeClock()
    output = FaultTolerantOutput(failing, now_s=clock.monotonic_s)
    for step in (1, 2, 3, 2, 4):
        output.write({"a": 1.0}, step, 0.0)
        clock.advance(60.0)
    assert failing.steps == [1, 3, 4]
    assert failing.closed == 2
    assert len(caplog.records) == 1


def test_a_row_begins_anew_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a full disk, rows are written to a new event file, not after a part of a row."""
    clock, output = FakeClock(), TensorBoardOutput(tmp_path)
    tolerant = FaultTolerantOutput(output, now_s=clock.monotonic_s)
    tolerant.write({"a": 1.0}, 1, 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(output._writer, "flush", full)
        tolerant.write({"a": 2.0}, 2, 0.0)
    clock.advance(60.0)
    tolerant.write({"a": 3.0}, 3, 0.0)
    tolerant.close()
    assert len(list(tmp_path.iterdir())) == 2


def full() -> None:
    """Raise the error of a full disk."""
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_owner_chooses_the_name(caplog: pytest.LogCaptureFixture) -> None:
    """A failure to close is logged with the name of the output."""
    FaultTolerantOutput(Failing(fails_at=0), "my logger").close()
    assert "cannot be written to my logger" in caplog.records[0].message
