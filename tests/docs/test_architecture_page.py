"""The architecture page names existing files, and all packages."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("energy_callbacks", "integrations", "tests", "docs", "examples")
    for path in (ROOT / folder, *(ROOT / folder).rglob("*"))
)
NAMED = sorted(set(re.findall(r"`([a-z_/]+(?:\.py|\.md|/))`", PAGE)))
PACKAGES = sorted(
    path.name
    for path in (ROOT / "energy_callbacks").iterdir()
    if path.suffix == ".py" or (path / "__init__.py").exists()
)


@pytest.mark.parametrize("name", NAMED)
def test_what_it_names_is_there(name: str) -> None:
    """Each name is the path, or the end of a path, of a file or folder."""
    assert any(f"/{path}".endswith(f"/{name.rstrip('/')}") for path in FILES)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_in_it(package: str) -> None:
    """All packages except Python's own module names."""
    is_plain = Path(package).stem in ("__init__", "__main__", "version")
    assert is_plain or f"`{package}" in PAGE
