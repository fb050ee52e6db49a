"""BibTeX entries of the sources that a text names, from the file ``sources.bib``.

The field ``keywords`` of an entry, which BibTeX does not print, lists the words by which a text
names the source, such as its DOI. To add a source, add an entry.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_FILE: Final = Path(__file__).with_name("sources.bib")
_KEYWORDS: Final = re.compile(r"^  keywords = \{(.*)\},\n", re.MULTILINE)


class BibEntry(NamedTuple):
    """An entry without its keywords, and the keywords."""

    text: str
    keywords: tuple[str, ...]


@cache
def entries() -> Mapping[str, BibEntry]:
    """Return all entries by their keys, in the order of the file."""
    found = {}
    for block in _FILE.read_text(encoding="utf-8").strip().split("\n\n"):
        key = block[block.index("{") + 1 : block.index(",")]
        words = _KEYWORDS.findall(block)[0].split("; ")
        found[key] = BibEntry(f"{_KEYWORDS.sub('', block)}\n", tuple(words))
    return found


def keys_in(text: str) -> tuple[str, ...]:
    """Return the keys of the entries that a text names.

    >>> keys_in("bound assumed: doi 10.1145/3177754 (Intel), arXiv 2108.00808 (AMD)")
    ('khan2018', 'schoene2021')
    """
    return tuple(
        key for key, entry in entries().items() if any(word in text for word in entry.keywords)
    )


def bibtex(keys: Iterable[str], tool_version: str) -> str:
    """Return the entries with these keys.

    Args:
        keys: keys of entries.
        tool_version: version of this package that measured.
    """
    used = [entries()[key].text for key in dict.fromkeys(keys)]
    return "\n".join(used).replace("VERSION", tool_version)
