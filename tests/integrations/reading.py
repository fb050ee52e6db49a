"""Reads the output of a training: rows of event files and phases of a report."""

from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

Rows = dict[str, list[tuple[int, float]]]


def scalars(folder: Path) -> Rows:
    """Return all rows (step, value) of a TensorBoard run by tag, written as scalars or tensors.

    Raises:
        FileNotFoundError: if the folder does not exist.
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


def training_files(folder: Path) -> list[Path]:
    """Return the event files in a folder, except those with the report's pages."""
    files = folder.glob("*tfevents*")
    return [path for path in files if b"energy_report" not in path.read_bytes()]


def steps(rows: list[tuple[int, float]]) -> list[int]:
    """Return the step of each row."""
    return [step for step, _ in rows]


def phases(report: Any) -> dict[str, float]:
    """Return the duration of each phase in seconds, by name."""
    return {phase.name: phase.duration_s for phase in report.phases}
