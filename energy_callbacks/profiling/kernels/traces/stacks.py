"""Joules as flame graphs: folded stacks, and the same for speedscope.

Folded: a line for each kernel, ``class;kernel microjoules``, as Brendan Gregg's ``flamegraph.pl``
reads them. Speedscope: a profile whose weights are microjoules.
"""

from collections.abc import Sequence
from pathlib import Path

from energy_callbacks.core import atomic_files
from energy_callbacks.core.units import microjoules
from energy_callbacks.profiling.common.speedscope import document, sampled
from energy_callbacks.report.model.profile_kernels import KernelRow


def folded(rows: Sequence[KernelRow], steps: int) -> str:
    """Microjoules of all steps, a line for each kernel that has at least one.

    Args:
        rows: of a step.
        steps: of the training.
    """
    lines = [
        f"{_clean(row.class_name)};{_clean(row.name)} {weight}"
        for row, weight in _weights(rows, steps)
    ]
    return "\n".join(lines) + "\n" if lines else ""


def speedscope(rows: Sequence[KernelRow], steps: int, name: str) -> str:
    """The same as JSON.

    Args:
        rows: of a step.
        steps: of the training.
        name: of the profile.
    """
    frames: dict[str, int] = {}
    samples, weights = [], []
    for row, weight in _weights(rows, steps):
        stack = dict.fromkeys((row.class_name, row.name))  # idle is its own class
        samples.append([frames.setdefault(frame, len(frames)) for frame in stack])
        weights.append(weight)
    profile = sampled(f"{name} (microjoules, attributed)", "none", samples, weights)
    return document(name, [{"name": frame} for frame in frames], [profile])


def write(rows: Sequence[KernelRow], steps: int, folder: Path) -> dict[str, str]:
    """Both files; their names, or none if no energy is known."""
    text = folded(rows, steps)
    if not text:
        return {}
    atomic_files.write(folder / "kernels.folded", text)
    scope = speedscope(rows, steps, "energy of kernels")
    atomic_files.write(folder / "kernels.speedscope.json", scope)
    return {"folded": "profile/kernels.folded", "speedscope": "profile/kernels.speedscope.json"}


def _weights(rows: Sequence[KernelRow], steps: int) -> list[tuple[KernelRow, int]]:
    weighed = [
        (row, round(microjoules(row.energy_j * steps))) for row in rows if row.energy_j is not None
    ]
    return [(row, weight) for row, weight in weighed if weight > 0]


def _clean(name: str) -> str:
    """Without what separates frames and lines."""
    return " ".join(name.replace(";", ",").split())
