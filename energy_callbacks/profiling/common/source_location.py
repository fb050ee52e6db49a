"""Determines whether a file is the user's, and to which line a stack sample belongs."""

import dis
import site
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Final, Literal, NamedTuple

_PACKAGE: Final = Path(__file__).parents[2]
# Prefixes of the names of instructions that count as work; most others only move values.
_WORK: Final = ("CALL", "PRECALL", "BINARY_", "COMPARE_", "CONTAINS_", "UNARY_", "STORE_SUBSCR",
                "FOR_ITER", "GET_ITER", "IMPORT_", "SEND", "FORMAT_")  # fmt: skip
_CALLS: Final = ("CALL", "PRECALL")
_CHECKS: Final = (*_CALLS, "JUMP_BACKWARD", "POP_JUMP_BACKWARD", "RESUME")
# File names of code that is entered in IPython and in Python, from 3.13 on ``<python-input-0>``.
_ENTERED: Final = ("<ipython-input", "<python-input", "<stdin")


How = Literal["in", "at", "before"]
"""Relation of a stack sample to the instruction of its frame; see ``line_of``."""


class Line(NamedTuple):
    """A line of source.

    Attributes:
        file: path of the file, as in ``co_filename``.
        line: number of the line; 0 if unknown.
        function: qualified name of the function; ``<module>`` outside functions.
    """

    file: str
    line: int
    function: str


@cache
def _libraries() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {*site.getsitepackages(), site.getusersitepackages()}
    folders = (_PACKAGE.parent / "integrations", _PACKAGE.parent)
    adapters = [str(path) for folder in folders for path in folder.glob("energy_callbacks_*")]
    return tuple(f"{path.rstrip('/')}/" for path in (*paths, str(_PACKAGE), *adapters) if path)


@cache
def is_users(file: str) -> bool:
    """Return whether a file is the user's: not in Python, this package or an installed package.

    >>> is_users(dis.__file__), is_users("<frozen importlib._bootstrap>"), is_users("/x/train.py")
    (False, False, True)
    """
    if file.startswith("<"):
        return file.startswith(_ENTERED)
    is_installed = "/site-packages/" in file or "/dist-packages/" in file
    return not is_installed and not file.startswith(_libraries())


def entry(code: CodeType) -> int:
    """Return the offset at which a function begins to execute its own code.

    >>> entry(compile("1", "<x>", "eval"))
    0
    """
    return 2 * code.co_code[::2].find(dis.opmap["RESUME"])


def line_of(code: CodeType, offset: int, how: How) -> int:
    """Return the number of the line to which the time of a stack sample belongs.

    The interpreter takes samples only at certain points, called checks here: after calls, at a
    function's entry and at a loop's jump back. The time between two checks appears in the sample at
    the second check. Therefore, with ``how="at"``:

    * A jump does no work itself. A sample at a jump belongs to the last instruction before it that
      did work; instructions before the previous check are not considered.
    * A sample at a call belongs to the call. However, if there is a matrix product between the
      previous check and the call, the sample belongs to the product: there is no check during a
      product, so the sample is taken after it, at the call.

    Args:
        code: code of the sampled frame.
        offset: offset of the frame's current instruction, ``f_lasti``.
        how: ``in`` if the instruction is a call in progress, ``at`` if the sample was taken at the
            instruction and no call is in progress, ``before`` if the sample belongs to the work
            before the instruction.
    """
    steps = [step for step in dis.get_instructions(code) if step.offset <= offset]
    here = _line(steps[-1]) if steps else 0
    worked = here if how == "in" or not steps else _worked(steps, is_before=how == "before")
    return worked or here or code.co_firstlineno


def _worked(steps: Sequence[dis.Instruction], *, is_before: bool) -> int:
    """Return the last line that did work since the previous check; 0 if there is none.

    For a sample ``at`` a call, only matrix products count as work.
    """
    is_call = steps[-1].opname.startswith(_CALLS)
    # In CPython 3.11 a call consists of two instructions, PRECALL and CALL.
    earlier = steps[:-2] if is_call and steps[-2:-1] and _is(steps[-2], "PRECALL") else steps[:-1]
    for step in reversed(earlier):
        is_product = step.argrepr in ("@", "@=")
        if is_product or (_is(step, *_WORK) and (is_before or not is_call)):
            return _line(step)
        if _is(step, *_CHECKS):
            break
    return 0


def _is(step: dis.Instruction, *names: str) -> bool:
    return step.opname.startswith(names)


def _line(step: dis.Instruction) -> int:
    return (step.positions.lineno if step.positions else None) or 0
