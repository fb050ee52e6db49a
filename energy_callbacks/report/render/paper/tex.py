r"""Writes LaTeX: escaped text, tables of the package booktabs, and citations.

The result compiles with pdfLaTeX, UTF-8 input and ``\usepackage[T1]{fontenc}``.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from energy_callbacks.core.formatting import one_line

_ESCAPES: Final = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    **{character: f"\\{character}" for character in "$%&#_"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "·": r"$\cdot$",
    "µ": r"$\mu$",
    "°": r"$^\circ$",
    "…": r"\ldots{}",
}
# The last character of Latin Extended-A, and the characters before it that LaTeX does not define
# (LaTeX 2022-11-01 with T1 fonts).
_LAST: Final = "\u017f"
_UNDEFINED: Final = "\u0126\u0127\u0138\u013f\u0140\u0149\u0166\u0167\u017f"
_SMALL: Final = "\\footnotesize\n\\setlength{\\tabcolsep}{3pt}\n"


def escaped(text: str) -> str:
    r"""Return a text in which no character is a command of LaTeX.

    Characters that pdfLaTeX cannot typeset, such as Chinese ones, become question marks.

    >>> escaped("lr_1 & 5 % ± 1")
    'lr\\_1 \\& 5~\\% $\\pm$ 1'
    """
    escapes = "".join(map(_character, one_line(text)))
    # Without the braces, two hyphens become a dash.
    return re.sub("-(?=-)", "-{}", escapes).replace(" \\%", "~\\%")


def _character(character: str) -> str:
    is_defined = character <= _LAST and character not in _UNDEFINED
    return _ESCAPES.get(character, character if is_defined else "?")


def signed(text: str) -> str:
    r"""Return an escaped text in which hyphens before digits are minus signs.

    >>> signed("-5.1 % (-6.0 to +4.2)")
    '$-$5.1~\\% ($-$6.0 to +4.2)'
    """
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped(text))


def cite(keys: Iterable[str]) -> str:
    r"""Return the command that cites BibTeX entries; empty without keys.

    >>> cite(["yang2024", "khan2018"])
    '~\\cite{yang2024,khan2018}'
    """
    listed = ",".join(dict.fromkeys(keys))
    return f"~\\cite{{{listed}}}" if listed else ""


def across(text: str, columns: int, width: float) -> str:
    r"""Return a cell that covers several columns and has line breaks.

    Args:
        text: the text, which is escaped.
        columns: number of columns.
        width: width of the cell as a share of the width of a line.
    """
    return rf"\multicolumn{{{columns}}}{{{column(width)}}}{{{ragged(text)}}}"


def column(width: float) -> str:
    """Return the specification of a column with line breaks; the width is a share of a line."""
    return rf"p{{{width:.3g}\linewidth}}"


def ragged(text: str) -> str:
    """Return the cell of such a column: the text, without justification."""
    return rf"\raggedright {signed(text)}"


def table(
    caption: str,
    label: str,
    columns: str,
    blocks: Sequence[Sequence[Sequence[str]]],
    *,
    is_small: bool = False,
) -> str:
    r"""Return a floating table with the rules of booktabs.

    Args:
        caption: text above the table, which is escaped.
        label: name of the table for ``\ref``.
        columns: column specification of ``tabular``.
        blocks: blocks of rows of cells of LaTeX, the head first; a rule separates two blocks.
        is_small: whether the table has small letters and narrow gaps between columns.
    """
    # In cells with \raggedright, the command \\ would end a line and not the row.
    rows = ["".join(f"{' & '.join(row)} \\tabularnewline\n" for row in block) for block in blocks]
    return (
        f"\\begin{{table}}\n\\centering\n{_SMALL if is_small else ''}"
        f"\\caption{{{escaped(caption)}}}\n\\label{{{label}}}\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n" + "\\midrule\n".join(rows)
        + "\\bottomrule\n\\end{tabular}\n\\end{table}\n"
    )  # fmt: skip
