"""What a training leaves behind, read back: rows in event files, phases in a report."""

from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

Rows = dict[str, list[tuple[int, float]]]


def scalars(folder: Path) -> Rows:
    """All numbers in one run directory, tag to (step, value), written as scalars or as tensors.

    Raises:
        FileNotFoundError: where it is not there.
    """
    if not folder.is_dir():
        raise FileNotFoundError(folder)
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    reader.Reload()
    found = {
        tag: [(event.step, event.value) for event in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }
    for tag in reader.Tags()["tensors"]:
        events = [
            (event.step, tensor_util.make_ndarray(event.tensor_proto))
            for event in reader.Tensors(tag)
        ]
        if all(value.shape == () and value.dtype.kind == "f" for _, value in events):
            found[tag] = [(step, float(value)) for step, value in events]
    return found


def steps(rows: list[tuple[int, float]]) -> list[int]:
    """The steps of rows."""
    return [step for step, _ in rows]


def phases(report: Any) -> dict[str, float]:
    """Duration of each phase, s."""
    return {phase.name: phase.duration_s for phase in report.phases}
