"""CITATION.cff has the required fields, and agrees with the package and its BibTeX entry."""

from pathlib import Path
from typing import Any

import pytest

from energy_callbacks import __version__
from energy_callbacks.report.render.paper.bibliography import bibtex

ROOT = Path(__file__).parents[2]
# Required fields of the Citation File Format 1.2.0 (schema.json, "required").
REQUIRED = {"authors", "cff-version", "message", "title"}


@pytest.fixture
def citation() -> dict[str, Any]:
    """The fields of the file."""
    yaml = pytest.importorskip("yaml")
    fields: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    return fields


def test_the_file_has_the_required_fields(citation: dict[str, Any]) -> None:
    """Fields that the format requires are given, and each author has a name."""
    assert set(citation) >= REQUIRED
    assert citation["cff-version"] == "1.2.0"
    assert all(author["name"] for author in citation["authors"])


def test_the_version_is_that_of_the_package(citation: dict[str, Any]) -> None:
    """A new version changes both."""
    assert citation["version"] == __version__


def test_it_agrees_with_the_bibtex_entry(citation: dict[str, Any]) -> None:
    """Title, author and version are those of ``report --bibtex``."""
    entry = bibtex(["energy_callbacks"], __version__).replace("\\_", "_")
    for text in (citation["title"], citation["authors"][0]["name"], f"Version {__version__}"):
        assert f"{{{text}}}" in entry
