"""Every Python block of README and documentation runs, page by page, top to bottom."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def pages() -> list[Path]:
    """README and all documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def with_python() -> list[Path]:
    """Pages that hold Python."""
    return [page for page in pages() if BLOCK.search(page.read_text(encoding="utf-8"))]


def prelude() -> dict[str, Any]:
    """What a reader has at hand: a module of their own and its data."""
    pytest.importorskip("lightning")
    from energy_callbacks.testing import FakeClock
    from tests.integrations.lightning.training import TinyModule, loader

    return {"module": TinyModule(FakeClock()), "train_loader": loader()}


@pytest.mark.parametrize("page", with_python(), ids=lambda page: page.name)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run in one namespace, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    namespace = prelude()
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        exec(compile(block, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page leads to a file of this repository."""
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


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
