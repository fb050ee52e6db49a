"""Whether a file is the user's, and which of its lines a stack sample belongs to."""

import dis
import site
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Final, Literal, NamedTuple

_PACKAGE: Final = Path(__file__).parents[2]
# Lines of these do something; all others move values about.
_WORK: Final = ("CALL", "PRECALL", "BINARY_", "COMPARE_", "CONTAINS_", "UNARY_", "STORE_SUBSCR",
                "FOR_ITER", "GET_ITER", "IMPORT_", "SEND", "FORMAT_")  # fmt: skip
_CALLS: Final = ("CALL", "PRECALL")
_LOOKS: Final = (*_CALLS, "JUMP_BACKWARD", "POP_JUMP_BACKWARD", "RESUME")
_NOTEBOOK: Final = ("<ipython-input", "<stdin")


How = Literal["in", "at", "before"]
"""Where in its instruction a frame was when a look came; see ``line_of``."""


class Line(NamedTuple):
    """A line of source.

    Attributes:
        file: path, as the interpreter knows it.
        line: number; 0 if there is none.
        function: qualified name, ``<module>`` outside of all.
    """

    file: str
    line: int
    function: str


@cache
def _libraries() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {*site.getsitepackages(), site.getusersitepackages()}
    adapters = (_PACKAGE.parent / "integrations", _PACKAGE.parent)
    own = [str(path) for folder in adapters for path in folder.glob("energy_callbacks_*")]
    return tuple(f"{path.rstrip('/')}/" for path in (*paths, str(_PACKAGE), *own) if path)


@cache
def is_users(file: str) -> bool:
    """Whether a file is the user's own: not Python's, not installed, not ours.

    >>> is_users(dis.__file__), is_users("<frozen importlib._bootstrap>"), is_users("/x/train.py")
    (False, False, True)
    """
    if file.startswith("<"):
        return file.startswith(_NOTEBOOK)
    is_installed = "/site-packages/" in file or "/dist-packages/" in file
    return not is_installed and not file.startswith(_libraries())


def entry(code: CodeType) -> int:
    """The offset at which a function begins; before, it has done nothing.

    >>> entry(compile("1", "<x>", "eval"))
    0
    """
    steps = code.co_code[::2]
    return 2 * steps.find(dis.opmap["RESUME"])


def line_of(code: CodeType, offset: int, how: How) -> int:
    """The line that worked when the interpreter came to look at an instruction.

    It looks after calls, at a function's entry and at a loop's jump back only. A jump does no
    work: that was done by the instruction before it. A long matrix product is noticed at the
    next call; there it is always the product.

    Args:
        code: of the frame.
        offset: of the instruction, ``f_lasti``.
        how: ``in`` if the instruction is a call that is under way, ``at`` if the interpreter
            looked right here, ``before`` if what came before this call is asked for.
    """
    steps = [one for one in dis.get_instructions(code) if one.offset <= offset]
    here = _line(steps[-1]) if steps else 0
    worked = here if how == "in" or not steps else _worked(steps, is_before=how == "before")
    return worked or here or code.co_firstlineno


def _worked(steps: Sequence[dis.Instruction], *, is_before: bool) -> int:
    """Backwards from the last step to the look before it, if there is work in between."""
    is_call = steps[-1].opname.startswith(_CALLS)
    # CPython 3.11 has two instructions for a call.
    earlier = steps[:-2] if is_call and steps[-2:-1] and _is(steps[-2], "PRECALL") else steps[:-1]
    for step in reversed(earlier):
        takes = step.argrepr in ("@", "@=") or (_is(step, *_WORK) and (is_before or not is_call))
        if takes:
            return _line(step)
        if _is(step, *_LOOKS):
            break
    return 0


def _is(step: dis.Instruction, *names: str) -> bool:
    return step.opname.startswith(names)


def _line(step: dis.Instruction) -> int:
    return (step.positions.lineno if step.positions else None) or 0
