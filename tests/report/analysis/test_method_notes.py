"""Notes state only the assumptions that apply to the report."""

from pathlib import Path

import pytest

from energy_callbacks.report.build import build
from tests.report.journals import CPU, GPU, Attempt, write

SUM = "The scope total is the sum of gpu and host."
ATTEMPTS = "The run was started 2 times."
RANKS = "Each physical device is counted once."
CUT_OFF = "An attempt that stopped unexpectedly"
COST = "Cost: energy times PUE times 0.3 per kWh."


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([Attempt(devices=(GPU,))], set()),
        ([Attempt(devices=(GPU, CPU))], {SUM}),
        ([Attempt(devices=(GPU,), cut_off_at_s=70.0)], {CUT_OFF}),
        ([Attempt(devices=(GPU,), attempt=number) for number in (1, 2)], {ATTEMPTS}),
        ([Attempt(devices=(GPU,), world_size=2, rank=rank) for rank in (0, 1)], {RANKS}),
        ([Attempt(devices=(GPU,), config={"price_per_kwh": 0.3})], {COST}),
    ],
)
def test_notes_are_those_of_the_run(
    tmp_path: Path, attempts: list[Attempt], expected: set[str]
) -> None:
    """Sums, attempts, ranks and prices have a note only where the run has them."""
    for attempt in attempts:
        write(tmp_path, attempt)
    notes = build(tmp_path).method_notes
    found = {
        words
        for words in (SUM, ATTEMPTS, RANKS, CUT_OFF, COST)
        if any(note.startswith(words) for note in notes)
    }
    assert found == expected
