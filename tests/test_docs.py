"""Every Python block of README and documentation runs, each page in a process of its own."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.run_page import BLOCK, DOOR

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
FRAMEWORKS = {"lightning": "lightning", "keras": "keras", "huggingface": "transformers"}
BACKENDS = [name for name in ("torch", "jax", "tensorflow") if find_spec(name)]


def pages() -> list[Path]:
    """README and all documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def with_python() -> list[Path]:
    """Pages that hold Python."""
    return [page for page in pages() if BLOCK.search(page.read_text(encoding="utf-8"))]


@pytest.mark.framework
@pytest.mark.parametrize("page", with_python(), ids=lambda page: page.name)
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    """The blocks of a page run in one namespace, as a reader would type them."""
    text = page.read_text(encoding="utf-8")
    needed = {FRAMEWORKS[door] for door in DOOR.findall(text)}
    needed |= {"torch"} if "run_quick_profile(" in text else set()
    missing = [name for name in sorted(needed) if not find_spec(name)]
    if missing or ("keras" in needed and not BACKENDS):
        pytest.skip(f"not installed: {missing or 'a backend of Keras'}")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "integrations"))),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "KERAS_BACKEND": BACKENDS[0] if BACKENDS else "",
    }
    command = [sys.executable, "-m", "tests.run_page", str(page)]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


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
