"""Code blocks of the documentation run, and its links work.

Blocks of a framework run in its own tests, ``tests/integrations/*/test_docs.py``.
"""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from energy_callbacks.cli import COMMANDS
from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.docs import pages
from tests.docs.pages import ROOT

LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
OF_TORCH = re.compile(r"^import torch$|run_quick_profile\(", re.MULTILINE)
# Its blocks use the charts of a report, which are left out on other pages.
OF_CHARTS = "report-tools.md"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.charts] if page.name == OF_CHARTS else [])
        for page in pages.pages_of(None)
    ],
    ids=lambda page: page.name,
)
def test_blocks_without_a_framework_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of a page run in one namespace."""
    if not find_spec("torch") and any(map(OF_TORCH.search, pages.blocks(page, None))):
        pytest.skip("torch is not installed")
    monkeypatch.chdir(tmp_path)
    pages.run(page, None)


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page leads to a file of this repository."""
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("command", COMMANDS)
def test_the_readme_names_every_command(command: str) -> None:
    """The first page that a user sees has them all."""
    assert f"`energy-callbacks {command}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_begins_with_what_ci_runs() -> None:
    """The first two commands are the demo and the tests; CI installs and runs the second."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^```sh\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)[0].splitlines()
    demo, tests = [line for line in commands if line and not line.startswith("#")][:2]
    assert demo.endswith("&& energy-callbacks demo")
    assert "_TIME" not in readme
    install, run = tests.split(" && ")
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert install in ci
    assert run in ci
