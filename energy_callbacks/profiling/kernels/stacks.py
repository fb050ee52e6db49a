"""Writes the energy of kernels for flame graphs: as folded stacks, and as a file for speedscope.

The file of folded stacks, for Brendan Gregg's ``flamegraph.pl``, has one line per kernel:
``class;kernel microjoules``. The weights in the speedscope file are microjoules, too.
"""

from collections.abc import Sequence
from pathlib import Path

from energy_callbacks.core import atomic_files
from energy_callbacks.core.units import microjoules
from energy_callbacks.profiling.common.speedscope import document
from energy_callbacks.report.model.profile_kernels import KernelRow


def folded(rows: Sequence[KernelRow], steps: int) -> str:
    """Return folded stacks with the energy of each kernel in all steps.

    Kernels whose energy is unknown or rounds to 0 microjoules are left out.

    Args:
        rows: kernels with their energy per step.
        steps: number of steps of the training.
    """
    return "".join(
        f"{_clean(row.class_name)};{_clean(row.name)} {weight}\n"
        for row, weight in _weights(rows, steps)
    )


def speedscope(rows: Sequence[KernelRow], steps: int, name: str) -> str:
    """Return the energies of ``folded`` as a JSON document for speedscope.

    There are two differences from ``folded``. Names keep their semicolons and white space. If class
    and name are equal, as for idle time, the stack has one frame (``idle``), not two
    (``idle;idle``).

    Args:
        rows: kernels with their energy per step.
        steps: number of steps of the training.
        name: name of the profile.
    """
    weighed = _weights(rows, steps)
    return document(
        name,
        # Class and name are equal for idle time, which then has one frame.
        [list(dict.fromkeys((row.class_name, row.name))) for row, _ in weighed],
        lambda frame: {"name": frame},
        {f"{name} (microjoules, attributed)": ("none", [weight for _, weight in weighed])},
    )


def write(rows: Sequence[KernelRow], steps: int, folder: Path) -> dict[str, str]:
    """Write both files, and return their paths relative to the run folder.

    The keys of the paths are ``folded`` and ``speedscope``. If the folded stacks are empty, no file
    is written and the result is empty.

    Args:
        rows: kernels with their energy per step.
        steps: number of steps of the training.
        folder: folder ``profile`` in the run folder.
    """
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
    """Return a name without the characters that separate frames and lines in folded stacks."""
    return " ".join(name.replace(";", ",").split())
