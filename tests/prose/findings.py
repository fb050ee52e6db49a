"""Applies the checks of proselint and of this project to a text."""

from collections.abc import Iterator

from proselint import checks
from proselint.config import Config
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

from tests.prose.rules import CHECKS

# Groups of proselint's checks that are not applied, each for a reason.
_WITHOUT = {
    "annotations": "TODO is a value of no string here",
    "dates_times": "takes the possessive of H200 for a decade",
    "lexical_illusions": "takes orders of runs, such as A B A B, for repeated words",
    "restricted": "a list of the thousand commonest words",
    "typography": "prefers symbols that terminals and keyboards lack",
}
_MOST = 10_000


def _config() -> Config:
    groups = {check.path_segments[0] for check in (*checks.__register__, *CHECKS)}
    return Config(max_errors=_MOST, checks={group: group not in _WITHOUT for group in groups})


CheckRegistry().register_many((*checks.__register__, *CHECKS))
_CONFIG = _config()


def findings(text: str) -> Iterator[tuple[int, str]]:
    """Return the line of each finding in a text, and its message."""
    if not text.strip():
        return
    for result, _ in LintFile("text", text).lint(_CONFIG):
        # proselint puts a line break before the text, so positions begin at 1
        yield text.count("\n", 0, result.span[0] - 1) + 1, result.message
