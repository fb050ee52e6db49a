"""The prose linter finds what the style guide bans, in pages and in strings of the source."""

import pytest

from tests.prose.__main__ import excess, lowered
from tests.prose.findings import findings
from tests.prose.rules import MOST_WORDS
from tests.prose.texts import of_markdown, of_source, of_template

BANNED = [
    "Too short a window says so.",
    "Without a place, emissions are an interval.",
    "A rank whose journal is not there is missed in the report.",
    "Nobody said where this ran: emissions are an interval that holds nine in ten grids",
    "Copies made to be slow were told, and mended.",
    "Who wakes so much early has not come in vain.",
    "A child that notices nothing.",
    "Figures are computed each 0.8 s.",
    "After so many rows it is likewise.",
    "It is told of the end.",
    "The process ended without a word.",
    "The answer speaks of joules.",
    "The rules of the house.",
    "No exception of ours.",
    "A process of its own.",
    "The values stand beside the loss.",
    "It is utilised for ever.",
    "a " * MOST_WORDS + "long sentence.",
]
PLAIN = [
    "Windows too short for the sensor are flagged.",
    "Without a location, emissions are a range.",
    "The report lists ranks whose journal is missing.",
    "Location not set: the range covers 90 % of national grids.",
    "Tolerance for early wake-ups.",
    "Runs a command transparently, every 0.8 s.",
]


@pytest.mark.parametrize("text", BANNED)
def test_banned_phrases_are_found(text: str) -> None:
    """Phrases of the left column of the style guide, and sentences that are too long."""
    assert list(findings(text))


@pytest.mark.parametrize("text", PLAIN)
def test_plain_sentences_pass(text: str) -> None:
    """Sentences of the right column of the style guide."""
    assert not list(findings(text))


def test_a_finding_has_its_line() -> None:
    """Lines are counted from 1, as editors do."""
    assert [line for line, _ in findings("Good.\n\nThis one says so.\n")] == [3]


def test_strings_of_the_source_are_read() -> None:
    """Strings that Python joins are one text, at its first line; docstrings and keys are not."""
    code = '''"""A docstring with words."""
key = "a_key"
raise ValueError(
    f"no {thing} found "
    "in the file"
)
'''
    assert of_source(code).rstrip("\n") == "\n\n\nno § found in the file. "
    assert not of_source('font = "DejaVu Sans, sans-serif"').strip()


def test_code_in_pages_is_not_read() -> None:
    """Code, links and tags are left out; lines and the words around them stay."""
    page = "Use `says so`\n\n```python\nsays_so = 1\n```\nand [this](says-so.md) word.\n"
    assert "says" not in of_markdown(page)
    assert of_markdown(page).count("\n") == page.count("\n")
    assert of_template("<p class='so many'>{{ so.many }} runs</p>").strip("§") == " runs"


def test_known_findings_do_not_fail_and_only_fall() -> None:
    """One more finding in a file fails; a number is lowered when findings are fixed."""
    found = {"old.md": ["old.md:1: a", "old.md:2: b"], "new.md": ["new.md:1: c"], "good.md": []}
    assert excess(found, {"old.md": 2}) == ["new.md:1: c"]
    assert excess(found, {"old.md": 1, "new.md": 1}) == found["old.md"]
    assert lowered(found, {"old.md": 5, "good.md": 3}) == {"old.md": 2}
