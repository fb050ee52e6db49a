"""Line profiles of functions in a module that the test writes."""

import asyncio
import importlib
import re
import subprocess
import sys
import textwrap

import pytest

from energy_callbacks.accounting.line_profile import profile_lines

# Pages from the kernel: malloc may give memory that was freed, which the process has already.
MODULE = """
import functools
import mmap

NEW = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE

def load():
    data = mmap.mmap(-1, 64 << 20, NEW)
    size = len(data)
    return size

def other():
    return 1

def twice(function):
    @functools.wraps(function)
    def wrapper(*args):
        return 2 * function(*args)
    return wrapper

@twice
def decorated():
    kept = mmap.mmap(-1, 32 << 20, NEW)
    return 21

async def later():
    value = 3
    return value

def batches():
    yield 1

async def async_batches():
    yield 1

class Base:
    def inherited(self):
        return "inherited"

class Model(Base):
    def step(self, batch):
        return batch + 1

    @staticmethod
    def fixed():
        return "fixed"

    @classmethod
    def made(cls):
        return cls.__name__

nested = (lambda: (lambda: 0))()
number = 7
model = Model()
"""


@pytest.fixture
def subject(tmp_path, monkeypatch):
    """The module, importable by its name."""
    (tmp_path / "profiled_subject.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("profiled_subject")
    yield module
    del sys.modules["profiled_subject"]


def increment_mib(text, line):
    """Memory that a line of source added, according to the table."""
    (row,) = [row for row in text.splitlines() if row.rstrip().endswith(line)]
    return float(re.findall(r"(-?[\d.]+) MiB", row)[1])


def test_allocating_line_shows_its_size(subject):
    """A line that allocates 64 MiB shows an increment of 64 MiB, the line after it none."""
    with profile_lines("profiled_subject:load") as profile:
        assert subject.load() == 64 << 20
    assert increment_mib(profile.text, "64 << 20, NEW)") == pytest.approx(64, abs=8)
    assert abs(increment_mib(profile.text, "size = len(data)")) < 8
    assert "other" not in profile.text


def test_functions_are_put_back(subject):
    """After the block each function is the original object, also if the block failed."""
    before = (subject.load, vars(subject.Model)["fixed"], vars(subject.Base)["inherited"])
    names = ("profiled_subject:load", "profiled_subject:Model.fixed", subject.Model.inherited)

    def fail():
        with profile_lines(*names):
            assert subject.load is not before[0]
            raise RuntimeError("the user's own")

    with pytest.raises(RuntimeError, match="own"):
        fail()
    after = (subject.load, vars(subject.Model)["fixed"], vars(subject.Base)["inherited"])
    assert all(now is then for now, then in zip(after, before, strict=True))
    assert "inherited" not in vars(subject.Model)
    assert sys.gettrace() is None or "memory_profiler" not in repr(sys.gettrace())


def test_methods_of_all_kinds_are_followed(subject):
    """Plain, static, class and inherited methods return the same results and are in the table."""
    model = subject.Model()
    with profile_lines(
        model.step, subject.Model.fixed, subject.Model.made, model.inherited
    ) as seen:
        results = (model.step(1), subject.Model.fixed(), subject.Model.made(), model.inherited())
    assert results == (2, "fixed", "Model", "inherited")
    for line in ("batch + 1", 'return "fixed"', "cls.__name__", 'return "inherited"'):
        assert line in seen.text


def test_decorated_function_shows_its_own_lines(subject):
    """Under a decorator the table shows the function's own lines, not the decorator's."""
    with profile_lines("profiled_subject:decorated") as profile:
        assert subject.decorated() == 42
    assert increment_mib(profile.text, "32 << 20, NEW)") > 28
    assert "def wrapper" not in profile.text


def test_coroutine_is_followed(subject):
    """An async function is profiled while it runs."""
    with profile_lines("profiled_subject:later") as profile:
        assert asyncio.run(subject.later()) == 3
    assert "value = 3" in profile.text


def test_nothing_run_is_an_empty_text(subject):
    """Without a call, and before the block, there is no table."""
    profile = profile_lines("profiled_subject:load")
    assert profile.text == ""
    with profile:
        pass
    assert profile.text == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("profiled_subject:loads", "did you mean load"),
        ("profiled_subject:Model.stepp", "did you mean step"),
        ("profiled_subject:nothing_like_it", "check the spelling"),
        ("no_such_module_here:load", "no module 'no_such_module_here'"),
        ("load", "'module:function'"),
        ("profiled_subject:", "'module:function'"),
        (".profiled_subject:load", "'module:function'"),
        ("profiled_subject:model.step", "'model' is neither a class nor a module"),
        ("profiled_subject:number.step", "'number' is neither a class nor a module"),
        ("profiled_subject:batches", "batches is a generator"),
        ("profiled_subject:async_batches", "async_batches is a generator"),
    ],
)
def test_wrong_names_say_what_is_wrong(subject, name, message):
    """An unknown name is refused at construction, with similar names that exist."""
    with pytest.raises(ValueError, match=message):
        profile_lines(name)


@pytest.mark.parametrize("name", ["profiled_subject:number", "math:sqrt", "profiled_subject:Model"])
def test_only_python_functions(subject, name):
    """Numbers, functions written in C and classes have no lines to profile."""
    with pytest.raises(TypeError, match="only Python functions"):
        profile_lines(name)


def test_unreachable_functions_are_refused(subject):
    """Lambdas, inner functions, functions without a file, and an empty list are refused."""
    with pytest.raises(ValueError, match="enclosing function"):
        profile_lines(subject.nested)
    exec("def typed_in(): return 1", vars(subject))
    with pytest.raises(ValueError, match="not in a file"):
        profile_lines("profiled_subject:typed_in")
    with pytest.raises(ValueError, match="name at least one"):
        profile_lines()


def test_import_is_light():
    """memory_profiler is loaded when a profile starts, not before."""
    code = (
        "import sys, energy_callbacks.accounting.line_profile as m;"
        "assert 'memory_profiler' not in sys.modules;"
        "m.profile_lines('textwrap:dedent').__enter__();"
        "assert 'memory_profiler' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
