"""Which settings file applies, and what is refused."""

import os
import re
from pathlib import Path

import pytest

from energy_callbacks.core.settings.files import nearest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two folders inside each other; the innermost is the working directory."""
    inner = tmp_path / "project" / "src"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    return inner.parent


def country() -> str | None:
    """The country in the file that applies."""
    found = nearest()
    return None if found is None else found.values.get("country")


def test_the_nearest_file_applies_alone(project: Path) -> None:
    """Upwards from the working directory; the others are not combined with it."""
    assert nearest() is None
    (project.parent / "energy_callbacks.toml").write_text("country = 'FRA'\npue = 1.5\n")
    assert country() == "FRA"
    (project / "pyproject.toml").write_text("[tool.energy_callbacks]\ncountry = 'DEU'\n")
    found = nearest()
    assert found is not None
    assert found.values == {"country": "DEU"}
    assert found.label == f"{project}/pyproject.toml, [tool.energy_callbacks]"


def test_the_own_file_comes_before_the_project_of_the_same_folder(project: Path) -> None:
    """An empty file of our own counts, too."""
    (project / "pyproject.toml").write_text("[tool.energy_callbacks]\ncountry = 'DEU'\n")
    (project / "energy_callbacks.toml").write_text("\ufeffcountry = 'FRA'\n")
    assert country() == "FRA"
    (project / "energy_callbacks.toml").write_text("")
    assert country() is None


@pytest.mark.parametrize(
    "text", ["[tool.ruff]", "[project]\nname = 'energy_callbacks'", "broken ["]
)
def test_a_project_without_our_table_is_passed_over(project: Path, text: str) -> None:
    """Also if it cannot be parsed, because it is not about us."""
    (project.parent / "energy_callbacks.toml").write_text("country = 'FRA'\n")
    (project / "pyproject.toml").write_text(text)
    assert country() == "FRA"


@pytest.mark.parametrize(
    ("name", "table", "message"),
    [
        ("pyproject.toml", "[tool.energy-callbacks]", "write [tool.energy_callbacks]"),
        ("energy_callbacks.toml", "[tool.energy_callbacks]", "leave out the table's header"),
    ],
)
def test_settings_in_the_wrong_table_are_refused(
    project: Path, name: str, table: str, message: str
) -> None:
    """Otherwise they would be ignored, or the message would list the settings."""
    (project / name).write_text(f"{table}\ncountry = 'DEU'\n")
    with pytest.raises(ValueError, match=re.escape(message)):
        nearest()


def test_a_change_of_the_file_is_noticed(project: Path) -> None:
    """Files are cached by their time of change and size."""
    path = project / "energy_callbacks.toml"
    path.write_text("country = 'FRA'")
    assert country() == "FRA"
    path.write_text("country = 'DEU'")
    os.utime(path, ns=(1, 1))
    assert country() == "DEU"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("energy_callbacks.toml", b"country = DEU", r"not valid TOML: .* \(at line 1"),
        ("energy_callbacks.toml", b"a = '\xff'", "not valid TOML: 'utf-8' codec"),
        ("pyproject.toml", b"[tool]\nenergy_callbacks = 3", "must be a table, got 3"),
        ("pyproject.toml", b"tool = 'energy_callbacks'", "must be a table, got 'energy_callbacks'"),
    ],
)  # fmt: skip
def test_a_broken_file_is_refused_with_its_path(
    project: Path, name: str, content: bytes, message: str
) -> None:
    """TOML says where; tables are named."""
    (project / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        nearest()
    assert str(project / name) in str(caught.value)


def test_a_link_to_itself_is_passed_over(project: Path) -> None:
    """It is not a file."""
    path = project / "energy_callbacks.toml"
    path.symlink_to(path)
    assert nearest() is None


def test_a_working_directory_that_is_gone_has_no_file(project: Path) -> None:
    """Settings then come from arguments and the environment."""
    (project / "src").rmdir()
    assert nearest() is None


def test_a_file_without_permission_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the path and the reason."""
    path = project / "energy_callbacks.toml"
    path.write_text("")

    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ValueError, match=re.escape(f"{path} cannot be read: [Errno 13]")):
        nearest()
