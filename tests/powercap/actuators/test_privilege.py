"""Whether this process may change settings is read from the kernel."""

from pathlib import Path

import pytest

from energy_callbacks.powercap.actuators.privilege import is_admin

ROOT = "CapEff:\t000001ffffffffff\n"
DOCKER = "CapEff:\t00000000a80425fb\n"
ALL_IDS = "         0          0 4294967295\n"
NAMESPACE = "         0       1000          1\n"


@pytest.mark.parametrize(
    ("status", "uid_map", "expected"),
    [
        (ROOT, ALL_IDS, True),
        (DOCKER, ALL_IDS, False),
        (ROOT, NAMESPACE, False),
        ("", ALL_IDS, False),
        (None, None, False),
    ],
)
def test_root_of_the_machine_is_admin(
    monkeypatch: pytest.MonkeyPatch, status: str | None, uid_map: str | None, expected: bool
) -> None:
    """Root of a container or of a user namespace, and a system without /proc, are not."""
    texts = {"/proc/self/status": status, "/proc/self/uid_map": uid_map}

    def read(path: Path, **_: str) -> str:
        text = texts[str(path)]
        if text is None:
            raise FileNotFoundError(path)
        return text

    monkeypatch.setattr(Path, "read_text", read)
    assert is_admin() is expected
