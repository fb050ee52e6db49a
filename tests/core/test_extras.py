"""Imports of optional frameworks."""

import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from energy_callbacks.core import extras
from energy_callbacks.core.errors import MissingExtraError
from energy_callbacks.core.extras import install_command, requires


def test_a_missing_framework_is_named_with_what_to_install() -> None:
    """The message has the command; the original error is its cause."""
    with pytest.raises(MissingExtraError) as caught, requires("no_such_framework", extra="keras"):
        importlib.import_module("no_such_framework")
    assert f"run: {install_command('keras')}" in str(caught.value)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


GIT = {"url": "https://example.org/e.git", "vcs_info": {"vcs": "git"}}
TAG = {"url": GIT["url"], "vcs_info": {"vcs": "git", "requested_revision": "v1"}}
WHEEL = {"url": "file:///w/e.whl", "archive_info": {}}


@pytest.mark.parametrize(
    ("origin", "install", "upgrade"),
    [
        (None, "'energy-callbacks[keras]'", "energy-callbacks"),
        (
            GIT,
            "'energy-callbacks[keras] @ git+https://example.org/e.git'",
            "'energy-callbacks @ git+https://example.org/e.git'",
        ),
        (
            TAG,
            "'energy-callbacks[keras] @ git+https://example.org/e.git@v1'",
            "'energy-callbacks @ git+https://example.org/e.git'",
        ),
        (
            WHEEL,
            "'energy-callbacks[keras] @ file:///w/e.whl'",
            "'energy-callbacks @ file:///w/e.whl'",
        ),
        ({"url": "file:///my%20code", "dir_info": {}}, "'/my code[keras]'", "'/my code'"),
        ({"url": "file:///e", "dir_info": {"editable": True}}, "-e '/e[keras]'", "-e /e"),
    ],
)
def test_the_command_names_where_the_package_came_from(
    origin: Any, install: str, upgrade: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index, a repository, an archive, and a checkout, which is updated by git."""
    text = None if origin is None else json.dumps(origin)
    installed = SimpleNamespace(read_text={"direct_url.json": text}.get)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: installed)
    assert install_command("keras") == f"pip install {install}"
    command = install_command(upgrade=True)
    assert command.endswith(f"pip install --upgrade {upgrade}")
    assert command.startswith("git -C ") == ("dir_info" in (origin or {}))


@pytest.mark.parametrize("is_checkout", [True, False])
def test_a_package_that_is_not_installed_is_installed_from_its_checkout(
    is_checkout: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it was found through ``PYTHONPATH``; without a checkout, it comes from an index."""

    def distribution(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "energy_callbacks/core/extras.py"))
    if is_checkout:
        (tmp_path / "pyproject.toml").touch()
    source = f"{tmp_path}[zstd]" if is_checkout else "energy-callbacks[zstd]"
    assert install_command("zstd") == f"pip install '{source}'"


def test_any_of_several_packages_may_be_the_missing_one() -> None:
    """With two possible packages, the message names the one that is missing."""
    with (
        pytest.raises(MissingExtraError, match="'no_such_b'"),
        requires("no_such_a", "no_such_b", extra="x"),
    ):
        importlib.import_module("no_such_b")


@pytest.mark.parametrize(
    ("error", "names"),
    [
        (ModuleNotFoundError("x", name="numpy_extra"), ("lightning",)),
        (ModuleNotFoundError("x", name="lightning.inner"), ("lightning",)),
        (ImportError("cannot import name", name="lightning"), ("lightning",)),
        (ValueError("bug"), ("lightning",)),
    ],
)
def test_any_other_error_passes_unchanged(error: Exception, names: tuple[str, ...]) -> None:
    """An import that fails inside the framework, or inside ours, is not called missing."""
    with pytest.raises(type(error)) as caught, requires(*names, extra="lightning"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("required", "command"),
    [
        (["scipy-extra>=3", "scipy>=1.11"], "pip install 'scipy>=1.11'"),
        (["numpy>=1.26"], "pip install scipy"),
        (None, "pip install scipy"),
    ],
)
def test_a_missing_dependency_is_installed_in_the_range_of_this_package(
    required: list[str] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata has the range; other packages whose names begin alike are ignored."""
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: required)
    assert extras.dependency_command("scipy") == command
    with pytest.raises(MissingExtraError, match=re.escape(f"run: {command}")), requires("scipy"):
        raise ModuleNotFoundError(name="scipy")


def test_an_installed_package_is_found_without_importing_it() -> None:
    """``check_installed`` raises only for the missing one."""
    extras.check_installed("json")
    with pytest.raises(MissingExtraError, match=re.escape(install_command("phases"))):
        extras.check_installed("no_such_package", extra="phases")


def test_nothing_happens_where_nothing_is_missing() -> None:
    """Installed packages are imported without an error."""
    with requires("json", extra="x"):
        import json
    assert json


# Each case in a fork: a package that one has imported is there for all others.
NOTHING_OF_IT = """
import importlib, importlib.util, os, sys, types
import energy_callbacks.callback
hidden = set()
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
importlib.util.find_spec = lambda name: None
for case in sys.argv[1:]:
    if not os.fork():
        door, *names = case.split()
        hidden.update(names)
        if door == "huggingface" and names == ["transformers"]:
            sys.modules["accelerate"] = types.ModuleType("accelerate")  # the real one takes 3 s
        try:
            importlib.import_module("energy_callbacks." + door)
        except ImportError as error:
            print(type(error).__name__, error)
        sys.exit()
    os.wait()
"""
HIDDEN = (
    "lightning lightning lightning_utilities pytorch_lightning",
    "keras keras",
    "huggingface transformers accelerate torch",
    "huggingface transformers",
    "huggingface accelerate",
    "huggingface torch",
)


def test_a_door_without_its_framework_says_what_to_install() -> None:
    """Without a framework the message names the extra, whichever package is missing first."""
    command = [sys.executable, "-c", NOTHING_OF_IT, *HIDDEN]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    shown = answer.stdout.splitlines()
    assert len(shown) == len(HIDDEN), answer.stderr
    for case, line in zip(HIDDEN, shown, strict=True):
        assert line.startswith("MissingExtraError")
        assert f"[{case.split()[0]}]" in line
