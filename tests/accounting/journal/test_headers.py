"""Values in the header of a journal have the types that readers rely on."""

from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.accounting.journal import headers
from energy_callbacks.core.errors import JournalError

GOOD: dict[str, Any] = {
    "run_id": "r1", "attempt": 1, "host": "node", "rank": 0, "unix_s": 1.7e9,
    "columns": ["t_s", "power_w"], "tags": {}, "config": {"pue": 1.1, "place": {}},
    "before": {"folder": None, "energy_j": {"gpu": 1.0}}, "environment": {"command": "train"},
}  # fmt: skip


def check(header: dict[str, Any]) -> None:
    """Check a header of which all required values must be there."""
    headers.check(header, Path("rank0.jsonl"), 7, headers.REQUIRED)


def test_values_of_the_right_types_pass() -> None:
    """Values that are missing, null, or unknown to this version pass, too."""
    check(GOOD)
    check({**GOOD, "pid": None, "config": None, "from_a_later_version": [1]})


@pytest.mark.parametrize("name", headers.REQUIRED)
@pytest.mark.parametrize("is_null", [False, True])
def test_a_required_value_must_not_be_missing_or_null(name: str, is_null: bool) -> None:
    """Readers that merge no journals do not require it."""
    header = {**GOOD, name: None}
    if not is_null:
        del header[name]
    with pytest.raises(JournalError, match=name):
        check(header)
    headers.check(header, Path("rank0.jsonl"), 7)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"run_id": 1}, "run_id"),
        ({"rank": -1}, "rank"),
        ({"rank": 1.0}, "rank"),
        ({"attempt": True}, "attempt"),
        ({"attempt": 2**31}, "attempt"),
        ({"unix_s": "now"}, "unix_s"),
        ({"unix_s": 1e15}, "unix_s"),
        ({"unix_s": -1e11}, "unix_s"),
        ({"unix_s": float("nan")}, "unix_s"),
        ({"columns": ["t_s", 1]}, "columns"),
        ({"columns": "t_s"}, "columns"),
        ({"tags": []}, "tags"),
        ({"config": "x"}, "config"),
        ({"config": {"place": 1}}, "config.place"),
        ({"config": {"pue": "1"}}, "config.pue"),
        ({"before": {"energy_j": {"gpu": None}}}, "before.energy_j"),
        ({"environment": {"command": ["train"]}}, "environment.command"),
    ],
)
def test_a_value_of_a_wrong_type_is_named(changes: dict[str, Any], name: str) -> None:
    """The message has the file, the line, the name, the value, and what to think of it."""
    with pytest.raises(JournalError, match=rf"^rank0.jsonl, line 7: {name} .* got .* damaged"):
        check(GOOD | changes)


def test_the_message_shortens_long_values() -> None:
    """A damaged line may have megabytes."""
    with pytest.raises(JournalError) as raised:
        check({**GOOD, "columns": "x" * 10_000_000})
    assert len(str(raised.value)) < 300
