"""Which configuration is the cheapest, and whether that is more than chance."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from energy_callbacks.matrix.plan import Plan
from energy_callbacks.matrix.rows import Table
from energy_callbacks.report import words

# What the comparison calls the energy of a run.
_QUANTITY: Mapping[str, str] = {"total": "energy_total_j", "gpu": "energy_gpu_j"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer.

    Attributes:
        sentence: for people.
        is_real: ``None`` where it cannot be told.
    """

    sentence: str
    is_real: bool | None = None


def compared(plan: Plan, found: Table, folder: Path) -> Any:
    """The comparison of all configurations, saved into the results folder; ``None`` for one."""
    return None


def verdict(plan: Plan, found: Table, comparison: Any) -> Verdict:
    """Of a table, with what the comparison says of chance."""
    known = [row for row in found.rows if row.energy_j is not None]
    if not known:
        return Verdict(sentence="Nothing has been measured yet.")
    best = known[0]
    told = f"{best.name} is the cheapest, at {words.energy(best.energy_j)} a run"
    return Verdict(sentence=told)
