"""Tests of the line that did the work which a sample saw."""

import dis
import sys
import textwrap
from pathlib import Path

import pytest

import energy_callbacks
from energy_callbacks.profiling.common.source_location import entry, is_users, line_of

ROOT = Path(energy_callbacks.__file__).parents[1]


def code_of(source):
    """Return the code of the function that a source defines; its first line is 1."""
    (code,) = [
        one
        for one in compile(textwrap.dedent(source).strip(), "/x/y.py", "exec").co_consts
        if hasattr(one, "co_code")
    ]
    return code


def offset_of(code, line, *names):
    """Return the offset of the last instruction of a line with one of these names."""
    found = [
        one.offset
        for one in dis.get_instructions(code)
        if one.opname.startswith(names) and one.positions and one.positions.lineno == line
    ]
    return found[-1]


PRODUCT = """
def step(a, b, f):
    for _ in range(9):
        c = a @ b
        d = f(c)
        e = a + d
"""


@pytest.mark.parametrize(
    ("line", "name", "how", "expected"),
    [
        (4, "CALL", "at", 3),  # the product lasts, not the call behind it
        (4, "CALL", "in", 4),  # a look inside of f
        (4, "CALL", "before", 3),
        (5, "JUMP_BACKWARD", "at", 5),  # the sum, not the loop
        (2, "CALL", "at", 2),
    ],
)
def test_the_line_that_worked(line, name, how, expected):
    """Time that is sampled at the next call belongs to the product before; jumps take none."""
    code = code_of(PRODUCT)
    assert line_of(code, offset_of(code, line, name), how) == expected


def test_what_came_before_a_call_ends_at_the_look_before():
    """Python before a call that releases the interpreter belongs to the previous line."""
    code = code_of("def step(f, g):\n    f()\n    g()\n")
    assert line_of(code, offset_of(code, 3, "CALL"), "before") == 2
    assert line_of(code, offset_of(code, 2, "CALL"), "before") == 2


def test_a_function_begins_at_its_resume():
    """Generators and closures have instructions before their entry."""
    assert entry(code_of("def f():\n    return 1\n")) == 0
    assert entry(code_of("def f():\n    yield 1\n")) > 0


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/home/me/train.py", True),
        ("train.py", True),
        ("<ipython-input-3-abc>", True),
        ("<python-input-0>", True),
        ("<stdin>", True),
        ("<string>", False),
        ("<frozen importlib._bootstrap>", False),
        (dis.__file__, False),
        (pytest.__file__, False),
        (energy_callbacks.__file__, False),
        (f"{ROOT}/integrations/energy_callbacks_keras/x.py", False),
        (f"{sys.prefix}/lib/python3.11/site-packages/torch/nn/modules/module.py", False),
    ],
)  # fmt: skip
def test_whose_file_it_is(file, expected):
    """Files of Python, of installed packages and of this package are not the user's."""
    assert is_users(file) is expected
