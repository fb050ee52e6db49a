"""Settings for tests of commands."""

import pytest


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long for commands: on a busy machine, their interpreters start and end slowly."""
    package = "energy_callbacks.sensing.sources.commands"
    for limit in ("ipmi._PATIENCE_S", "powermetrics._PATIENCE_S", "command._END_S"):
        monkeypatch.setattr(f"{package}.{limit}", 60.0)
