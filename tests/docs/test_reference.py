"""Reference pages agree with the code."""

import importlib.util
from pathlib import Path

import pytest

from tests.sensing.sources.conformance import acme

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("build_reference", ROOT / "docs/build_reference.py")
assert SPEC is not None
assert SPEC.loader is not None
build_reference = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(build_reference)


@pytest.mark.parametrize("name", build_reference.PAGES)
def test_a_page_is_what_the_code_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/reference is up to date; ``python docs/build_reference.py`` updates it."""
    monkeypatch.setenv("COLUMNS", "88")
    written = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert written == build_reference.PAGES[name]()


def test_a_vendor_is_on_the_page_of_sensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A family in the list has a row, and a table with its files, units and sources."""
    monkeypatch.setattr(build_reference.families, "GPU_FAMILIES", (acme.FAMILY,))
    page = build_reference.sensors()
    assert "| Acme GPU | the whole device | yes | yes | 5 % | modelled files |" in page
    assert (
        "| power limit | `limit_mw` | not known | Acme, Sensors of the Anvil, section 3 |" in page
    )
    assert acme.FAMILY.permission_fix in page


def test_every_command_has_help() -> None:
    """Each command and each of its arguments has a help text."""
    parser = build_reference.build_parser()
    commands = parser._subparsers._group_actions[0].choices
    assert {"demo", "report", "doctor"} <= set(commands)
    for name, command in commands.items():
        assert command.description, name
        assert all(action.help for action in command._actions), name
