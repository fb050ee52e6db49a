"""Formats tables of text cells, as text with aligned columns or as markdown."""

import unicodedata
from collections.abc import Callable, Sequence
from itertools import zip_longest

from energy_callbacks.core.formatting import one_line

_MARKS = {"<": "---", ">": "---:"}


def _aligns(columns: int, align: str) -> str:
    """Return ``align`` with one character per column: cut, or with its last character repeated."""
    return align[:columns].ljust(columns, align[-1])


def aligned(
    rows: Sequence[Sequence[str]], align: str = "<>", width_of: Callable[[str], int] = len
) -> list[str]:
    r"""Return the lines of a table with aligned columns; cells may have several lines.

    >>> aligned([("size", "rate"), ("a\nb", "10")])
    ['size  rate', 'a       10', 'b']

    Args:
        rows: rows of cells, starting with the header.
        align: ``<`` (left) or ``>`` (right) per column; the last one applies to all further
            columns.
        width_of: returns the width of a text. ``display_width`` is correct for wide characters.
    """
    lines = [
        line
        for row in rows
        for line in zip_longest(*(cell.split("\n") for cell in row), fillvalue="")
    ]
    widths = [max(map(width_of, column)) for column in zip(*lines, strict=True)]
    aligns = _aligns(len(widths), align)
    return [
        "  ".join(
            _padded(cell, side, width - width_of(cell))
            for cell, side, width in zip(line, aligns, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def _padded(cell: str, side: str, gap: int) -> str:
    return cell + " " * gap if side == "<" else " " * gap + cell


def display_width(text: str) -> int:
    """Return the number of terminal columns of a text.

    East Asian wide characters take two columns, combining marks none.
    """
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    marks = sum(unicodedata.combining(character) != 0 for character in text)
    return len(text) + wide - marks


def markdown(rows: Sequence[Sequence[str]], align: str = "<>") -> list[str]:
    r"""Return the lines of a markdown table, with all cells escaped.

    >>> markdown([("size", "rate"), ("a|b", "10")])
    ['| size | rate |', '|---|---:|', '| a\\|b | 10 |']

    Args:
        rows: rows of cells, starting with the header.
        align: as in ``aligned``.
    """
    head, *body = (
        f"| {' | '.join('<br>'.join(map(escaped, cell.splitlines())) for cell in row)} |"
        for row in rows
    )
    marks = "|".join(_MARKS[side] for side in _aligns(len(rows[0]), align))
    return [head, f"|{marks}|", *body]


def escaped(cell: str) -> str:
    """Return a text escaped so that it cannot end a markdown cell, or start HTML or a link."""
    clean = one_line(cell).replace("&", "&amp;").replace("<", "&lt;")
    for character in "\\|`*_[]":
        clean = clean.replace(character, f"\\{character}")
    return clean
