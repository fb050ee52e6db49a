"""Tests of callbacks after imports, with modules that the test writes."""

import importlib
import sys

import pytest

from energy_callbacks.profiling.common.imports import when_imported


@pytest.fixture
def names(tmp_path, monkeypatch):
    """Writes two modules; the import of the second fails."""
    (tmp_path / "heard_subject.py").write_text("value = 1")
    (tmp_path / "broken_subject.py").write_text("raise OSError('own')")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    yield
    assert sys.meta_path == before
    sys.modules.pop("heard_subject", None)


def test_told_once_after_the_import(names):
    """The callback gets the executed module, once."""
    heard = []
    when_imported("heard_subject", lambda module: heard.append(module.value))
    importlib.import_module("textwrap")
    assert heard == []
    for _ in range(2):
        importlib.import_module("heard_subject")
    assert heard == [1]


def test_told_at_once_of_what_is_there(names):
    """An imported module is passed on at once."""
    heard = []
    module = importlib.import_module("heard_subject")
    when_imported("heard_subject", heard.append)
    assert heard == [module]


def test_forgotten_is_not_told(names):
    """A cancelled callback is not called by a later import."""
    heard = []
    when_imported("heard_subject", heard.append)()
    importlib.import_module("heard_subject")
    assert heard == []


def test_a_module_that_breaks_breaks_as_ever(names):
    """The import raises the module's exception, and the callback is not called."""
    heard = []
    when_imported("broken_subject", heard.append)
    with pytest.raises(OSError, match="own"):
        importlib.import_module("broken_subject")
    assert heard == []


def test_a_bug_of_ours_does_not_break_the_import(names, caplog):
    """The module is imported, and one warning is logged."""

    def broken(module):
        raise AttributeError("an older torch has no such hook")

    when_imported("heard_subject", broken)
    assert importlib.import_module("heard_subject").value == 1
    assert "heard_subject does not record this module" in caplog.text
