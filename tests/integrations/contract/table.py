"""Generates the table in docs/frameworks.md: the tests of the contract in each framework.

If the page is out of date, run ``python -m tests.integrations.contract.table``.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.integrations.contract import PARTS
from tests.integrations.contract.reasons import REASONS

PAGE: Final = Path(__file__).parents[3] / "docs" / "frameworks.md"
BEGIN: Final = "<!-- begin of the table: python -m tests.integrations.contract.table -->\n"
END: Final = "<!-- end of the table -->\n"
COLUMNS: Final = {
    "lightning": "Lightning",
    "huggingface": "Hugging Face",
    "keras-tensorflow": "Keras, TensorFlow",
    "keras-jax": "Keras, JAX",
    "keras-torch": "Keras, torch",
}


def situations(part: type) -> dict[str, str]:
    """Return the docstring of each test of a part of the contract in one line, by test name."""
    return {
        name: " ".join(test.__doc__.split())
        for name, test in vars(part).items()
        if name.startswith("test_")
    }


def table() -> str:
    """Return the table of all tests, with ticks or numbers of reasons, and the list of reasons."""
    reasons = list(dict.fromkeys(r for found in REASONS.values() for r in found.values()))
    lines = [f"| | {' | '.join(COLUMNS.values())} |", "|---|" + ":-:|" * len(COLUMNS)]
    for part in PARTS:
        lines.append(f"| *{_words(part.__doc__)}* |" + " |" * len(COLUMNS))
        for name, claim in situations(part).items():
            cells = (REASONS[framework].get(name) for framework in COLUMNS)
            ticks = ("✓" if why is None else f"({reasons.index(why) + 1})" for why in cells)
            lines.append(f"| **{name_in_words(name)}**: {claim} | {' | '.join(ticks)} |")
    return "\n".join([*lines, "", *_numbered(reasons)]) + "\n"


def name_in_words(name: str) -> str:
    """Return the name without its prefix, such as ``phases sum to the total``."""
    return name.removeprefix("test_").replace("_", " ")


def _words(text: str | None) -> str:
    return inspect.cleandoc(text or "").rstrip(".")


def _numbered(reasons: list[str]) -> Iterator[str]:
    for number, reason in enumerate(reasons, start=1):
        yield f"{number}. {reason[0].upper()}{reason[1:]}."


def page_with(text: str) -> str:
    """Return the text of the page with its table replaced by this one."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page_with(table()), encoding="utf-8")
