from pathlib import Path

import pytest

from energy_callbacks.core import json_lines
from energy_callbacks.core.errors import JournalError


def test_what_is_no_record_is_left_out() -> None:
    """Incomplete lines, trailing text, lists and records without a type are left out."""
    lines = ['{"type": "a"}\n', '{"type": "b"', '{"type": "c"} {}', "[1]", '{"kind": "d"}', ""]

    assert list(json_lines.parsed(lines)) == [{"type": "a"}]


def test_a_newer_version_is_refused() -> None:
    """Known versions are read; for newer ones the message says what to do."""
    json_lines.check_version({"version": 2}, 2, "journal", Path("x"))
    with pytest.raises(JournalError, match=r"a journal of version 3.*up to 2.*pip install"):
        json_lines.check_version({"version": 3}, 2, "journal", Path("x"))
