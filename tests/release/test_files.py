"""The files of a release: addresses, workflows, Dockerfile, extras and installation commands."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from energy_callbacks.version import __version__
from tests.lanes import ROOT
from tests.release.test_minimal_install import PACKAGES

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ADDRESS: str = PROJECT["urls"]["Source"]
# Files with the address of the repository, or of one of its pages.
WITH_ADDRESS = (
    "README.md", "SECURITY.md", "pyproject.toml", "examples/quickstart.ipynb",
    "examples/quick_profile.ipynb", ".github/ISSUE_TEMPLATE/config.yml",
)  # fmt: skip
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def workflow(path: Path) -> dict[Any, Any]:
    """Return a workflow; YAML 1.1 reads its key ``on`` as true."""
    found: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    return found


def steps() -> Iterator[dict[str, Any]]:
    """Yield the steps of all workflows."""
    for path in WORKFLOWS:
        for job in workflow(path)["jobs"].values():
            yield from job.get("steps", ())


@pytest.mark.parametrize("name", WITH_ADDRESS)
def test_the_address_is_that_of_the_metadata(name: str) -> None:
    """``[project.urls]`` has it; other files must change with it."""
    repository = ADDRESS.removeprefix("https://github.com/")
    assert repository in (ROOT / name).read_text("utf-8")


def test_no_other_file_has_the_address() -> None:
    """A file that is not in the list above would be forgotten."""
    owner = ADDRESS.removeprefix("https://github.com/").partition("/")[0]
    text = re.compile(rf"\.com/(github/)?{owner}/|{owner}\.github")
    suffixes = (".py", ".md", ".toml", ".yml", ".ipynb", ".html")
    folders = (".github", "docs", "energy_callbacks", "examples", "integrations", "tests")
    files = [*ROOT.glob("*.*"), *(one for name in folders for one in (ROOT / name).rglob("*.*"))]
    found = {
        path.relative_to(ROOT).as_posix()
        for path in files
        if path.suffix in suffixes and path.is_file() and text.search(path.read_text("utf-8"))
    }
    assert found == set(WITH_ADDRESS)


def test_the_changelog_has_the_version() -> None:
    """With its date, below the changes that are not released."""
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(__version__)}\] - \d{{4}}-\d{{2}}-\d{{2}}", headings[1])


def test_the_citation_has_the_version() -> None:
    """``CITATION.cff`` names the version of the package."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == __version__


def test_actions_have_versions() -> None:
    """A major version or a commit, never a branch such as ``main``."""
    actions = [step["uses"] for step in steps() if "uses" in step]
    assert len(actions) > 8
    for action in actions:
        assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+|[0-9a-f]{40})", action), action


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_may_only_read(path: Path) -> None:
    """Only the jobs named ``publish`` have more permissions, and no workflow uses a secret."""
    found = workflow(path)
    assert found["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in found[True]
    assert "secrets." not in path.read_text("utf-8")
    for name, job in found["jobs"].items():
        assert name == "publish" or "permissions" not in job, name


def test_commands_of_workflows_take_no_text_of_events() -> None:
    """An expression in a command is inserted before the shell reads it."""
    commands = [step["run"] for step in steps() if "run" in step]
    assert commands
    assert not [command for command in commands if "${{" in command]


def test_a_release_is_tested_built_and_trusted() -> None:
    """The upload waits for tests and build, and has the permission for trusted publishing."""
    jobs = workflow(ROOT / ".github" / "workflows" / "publish.yml")["jobs"]
    assert jobs["publish"]["needs"] == ["test", "build"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    for name in ("test", "build"):
        assert (ROOT / jobs[name]["uses"]).is_file()


def test_the_image_has_no_privileges() -> None:
    """Its last user is a number other than 0, and every base image names its version."""
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    users = [line[1] for line in words if line[0] == "USER"]
    assert users
    assert int(users[-1]) > 0
    for _, image, *_ in (line for line in words if line[0] == "FROM"):
        assert re.fullmatch(r"python:3\.\d+-slim-\w+", image), image


def test_extras_that_messages_name_are_there() -> None:
    """``requires(..., extra=...)`` and the adapters name extras of pyproject.toml."""
    sources = [*(ROOT / "energy_callbacks").rglob("*.py"), *(ROOT / "integrations").rglob("*.py")]
    texts = [path.read_text("utf-8") for path in sources]
    named = {name for text in texts for name in re.findall(r'extra="(\w+)"', text)}
    assert {"phases", "powercap", "memory", "completion", "query"} <= named
    assert named <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_on_pages_install_from_a_checkout(page: Path) -> None:
    """The package is on no index yet; extras of the commands exist."""
    for command in re.findall(r"pip install [^`\n&]*", page.read_text("utf-8")):
        assert not re.search(r"(?<!\S)'?energy-callbacks", command), command
        for extras in re.findall(r"'\.\[([\w,]+)\]'", command):
            assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"]), command


def test_the_page_lists_every_dependency_and_extra() -> None:
    """Each dependency has a size and a reason, each extra for users a command."""
    page = (ROOT / "docs" / "installation.md").read_text("utf-8")
    for requirement in PROJECT["dependencies"]:
        name = re.split(r"[<>=]", requirement)[0]
        assert len(re.findall(rf"^\| {re.escape(name)} \|", page, re.MULTILINE)) >= 2, name
    for extra in set(PROJECT["optional-dependencies"]) - {"test", "dev", "docs"}:
        assert f"| `{extra}` | `python -m pip install '.[{extra}]'` |" in page, extra
    assert f"python -m pip install {' '.join(PACKAGES)}\n" in page
