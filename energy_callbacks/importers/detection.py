"""Selects one run of a file that holds several."""

from collections.abc import Mapping
from typing import Final, TypeVar

from energy_callbacks.core.errors import JournalError
from energy_callbacks.importers.protocol import Log

LAST: Final = "last"
_MOST_NAMED: Final = 8

T = TypeVar("T")


def chosen(log: Log, runs: Mapping[str, T], says: Mapping[str, str]) -> T:
    """The run that stands behind ``#`` in the path, or the only one.

    Args:
        log: with the choice.
        runs: by their names, in the order of the file.
        says: what distinguishes them for people, by the same names.

    Raises:
        JournalError: if none of several was chosen, or one that is not there.
    """
    if not runs:
        raise JournalError(f"{log.path} holds no run that can be read")
    if log.choice == LAST or (log.choice is None and len(runs) == 1):
        return list(runs.values())[-1]
    if log.choice in runs:
        return runs[log.choice or ""]
    problem = f"no run {log.choice!r}" if log.choice else f"{len(runs)} runs"
    named = [f"{name} ({says[name]})" for name in list(runs)[-_MOST_NAMED:]]
    which = "the last are" if len(runs) > len(named) else "they are"
    raise JournalError(
        f"{log.path} holds {problem}; give {log.path.name}#{LAST}, or the name of one behind #: "
        f"{which} {', '.join(named)}"
    )
