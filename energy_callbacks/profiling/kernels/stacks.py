"""Writes the energy of kernels as flame graphs: folded stacks, and a file for speedscope.

Folded stacks have one line per kernel, ``class;kernel microjoules``, as Brendan Gregg's
``flamegraph.pl`` reads them. The weights of the speedscope profile are microjoules, too.
"""

from collections.abc import Sequence
from pathlib import Path

from energy_callbacks.core import atomic_files
from energy_callbacks.core.units import microjoules
from energy_callbacks.profiling.common.speedscope import document
from energy_callbacks.report.model.profile_kernels import KernelRow


def folded(rows: Sequence[KernelRow], steps: int) -> str:
    """Return the microjoules of all steps, one line per kernel with at least one.

    Args:
        rows: kernels with their energy per step.
        steps: number of steps of the training.
    """
    return "".join(
        f"{_clean(row.class_name)};{_clean(row.name)} {weight}\n"
        for row, weight in _weights(rows, steps)
    )


def speedscope(rows: Sequence[KernelRow], steps: int, name: str) -> str:
    """Return the same as a JSON file for speedscope.

    Args:
        rows: kernels with their energy per step.
        steps: number of steps of the training.
        name: name of the profile.
    """
    weighed = _weights(rows, steps)
    return document(
        name,
        [list(dict.fromkeys((row.class_name, row.name))) for row, _ in weighed],  # idle: one frame
        lambda frame: {"name": frame},
        {f"{name} (microjoules, attributed)": ("none", [weight for _, weight in weighed])},
    )


def write(rows: Sequence[KernelRow], steps: int, folder: Path) -> dict[str, str]:
    """Write both files and returns their names; writes nothing if no energy is known."""
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
    """Replace the characters that separate frames and lines."""
    return " ".join(name.replace(";", ",").split())
