"""Imports of optional frameworks."""

import importlib
import subprocess
import sys

import pytest

from energy_callbacks.core.errors import MissingExtraError
from energy_callbacks.core.extras import requires


def test_a_missing_framework_is_named_with_what_to_install() -> None:
    """The message holds the command; the original error is its cause."""
    with pytest.raises(MissingExtraError) as caught, requires("no_such_framework", extra="keras"):
        importlib.import_module("no_such_framework")
    assert "run: pip install 'energy-callbacks[keras]'" in str(caught.value)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


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
        assert f"energy-callbacks[{case.split()[0]}]" in line
