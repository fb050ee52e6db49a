"""Reports, journals, event files and command outputs equal the stored results."""

import sys
from pathlib import Path

import pytest

from tests.golden import results

# The help texts of argparse differ between Python versions.
pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="what is expected was stored with Python 3.11"
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write all results with this version."""
    folder = tmp_path_factory.mktemp("golden")
    results.write(folder)
    return folder


def _lines(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text(encoding="utf-8").splitlines()


def test_commands_print_what_they_printed(written: Path) -> None:
    """Help, reports, comparisons, projections, queries and errors, with their exit codes."""
    assert _lines(written, results.OUTPUT) == _lines(results.EXPECTED, results.OUTPUT)


def test_files_are_the_same_byte_by_byte(written: Path) -> None:
    """HTML, text, JSON, PNG, CSV, the journal and event file of a training in virtual time."""
    assert _lines(written, results.CHECKSUMS) == _lines(results.EXPECTED, results.CHECKSUMS)
