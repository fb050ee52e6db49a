"""The wheel in a new environment with the packages that measuring needs, and no others.

The packages come from the package index. Without one, the test is skipped, except in CI.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.fake_nvml import Constant, Scenario, env, h200
from tests.lanes import ROOT
from tests.release.programs import LOOP, python, report_of

# docs/installation.md has the same list.
PACKAGES = ("numpy", "psutil", "nvidia-ml-py", "pydantic", "rich", "jinja2")
POWER_W = 200.0


def pip(interpreter: str, *words: str | Path) -> None:
    """Install packages; skip the test if there is no package index, except in CI."""
    command = [sys.executable, "-m", "pip", "--python", interpreter, "--quiet", "install"]
    command += ["--no-compile", *map(str, words)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if ended.returncode and "CI" not in os.environ and "from versions: none" in ended.stderr:
        pytest.skip("no package index")
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the wheel, install it without dependencies, and return the path of Python."""
    folder = tmp_path_factory.mktemp("minimal")
    venv.create(folder, symlinks=True)
    found = str(folder / "bin" / "python")
    pip(found, "-c", ROOT / "constraints.txt", *PACKAGES)
    pip(found, "--no-deps", ROOT)
    return found


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return variables of a process with one simulated GPU, and nothing of this checkout."""
    path = Scenario(cards=(h200(Constant(POWER_W)),)).write(tmp_path / "scenario.txt")
    base = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    return env(path, base=base)


def test_only_these_packages_are_installed(interpreter: str, tmp_path: Path) -> None:
    """Neither dependencies of this package nor its checkout are found."""
    code = (
        "from importlib.util import find_spec as found\n"
        "import energy_callbacks\n"
        "hidden = 'codecarbon', 'matplotlib', 'tensorboard', 'scipy', 'pandas', 'torch'\n"
        "print(energy_callbacks.__file__, [name for name in hidden if found(name)])"
    )
    printed = python(["-c", code], tmp_path, {}, interpreter)
    assert "site-packages" in printed
    assert printed.strip().endswith("[]")


def test_it_measures(interpreter: str, tmp_path: Path, environment: dict[str, str]) -> None:
    """A loop and a command have reports; the energy of a GPU is that of its constant power."""
    for name in ("loop", "command"):
        (tmp_path / name).mkdir()
    python(["-c", LOOP], tmp_path / "loop", environment, interpreter)
    assert report_of(tmp_path / "loop")["throughput"]["samples"] == 20 * 64
    command = str(Path(interpreter).with_name("energy-callbacks"))
    words = ("run", "--", "sleep", "1.5")
    python([command, *words], tmp_path / "command", environment, interpreter)
    report = report_of(tmp_path / "command")
    expected_j = POWER_W * report["run"]["duration_s"]
    assert report["energy"]["gpu"]["energy_j"] == pytest.approx(expected_j, rel=0.2)


def test_the_metadata_names_the_command_that_installs_the_rest(
    interpreter: str, tmp_path: Path
) -> None:
    """The range of versions is that of pyproject.toml."""
    code = (
        "from energy_callbacks.core.extras import dependency_command as c; print(c('codecarbon'))"
    )
    printed = python(["-c", code], tmp_path, {}, interpreter).strip()
    assert printed == "pip install 'codecarbon<4,>=2.8'"


def test_links_of_the_description_lead_to_the_repository(interpreter: str, tmp_path: Path) -> None:
    """A package index shows the README, in which relative links would lead nowhere."""
    code = (
        "import re\nfrom importlib.metadata import metadata\n"
        "text = metadata('energy-callbacks').get_payload()\n"
        "print(*re.findall(r'\\]\\(([^)]*)\\)', text), sep='\\n')"
    )
    links = python(["-c", code], tmp_path, {}, interpreter).split()
    assert len(links) > 50
    assert not [link for link in links if not link.startswith("https://")]
    pictures = [link for link in links if link.endswith(".png")]
    assert pictures
    assert all(link.startswith("https://raw.githubusercontent.com/") for link in pictures)
