"""BibTeX entries cover the sources that the sensors of this package cite."""

import re
from pathlib import Path

import energy_callbacks
from energy_callbacks.report.render.paper import bibliography

SOURCES = Path(energy_callbacks.__file__).parent / "sensing" / "sources"
_STRINGS = re.compile(r'"([^"\n]*(?:arXiv |doi )[^"\n]*)"')
_IDENTIFIER = re.compile(r"arXiv \d{4}\.\d{5}|10\.\d{4,}/[\w.]+\w")


def test_every_identifier_in_a_citation_has_an_entry() -> None:
    """DOIs and arXiv numbers in texts of sensors are keywords of an entry."""
    cited = {
        identifier
        for path in SOURCES.rglob("*.py")
        for text in _STRINGS.findall(path.read_text(encoding="utf-8"))
        for identifier in _IDENTIFIER.findall(text)
    }
    assert {"arXiv 2312.02741", "10.1145/3177754", "10.1145/2989081.2989088"} <= cited
    assert {one for one in cited if not bibliography.keys_in(one)} == set()


def test_an_entry_has_the_identifier_of_its_keyword() -> None:
    """The keyword of an entry with a DOI or arXiv number is that of the entry."""
    for entry in bibliography.entries().values():
        for keyword in entry.keywords:
            if found := _IDENTIFIER.search(keyword):
                assert found[0].removeprefix("arXiv ") in entry.text


def test_entries_are_well_formed() -> None:
    """Braces are balanced, keywords are left out, and each entry has a title."""
    entries = bibliography.entries()
    assert len(entries) >= 10
    for entry in entries.values():
        assert entry.text.count("{") == entry.text.count("}")
        assert "keywords" not in entry.text
        assert "  title = " in entry.text
        assert entry.keywords


def test_an_unknown_text_has_no_source() -> None:
    """A text that names no source gets no entry."""
    assert bibliography.keys_in("man page of powermetrics") == ()
