"""Prints tables of text."""

from collections.abc import Collection, Sequence
from typing import Final

from energy_callbacks.core.tables import aligned

_GAP: Final = 2  # spaces between two columns


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str] = ()
) -> None:
    """Print a table, with a bold header and wrapped cells if standard output is a terminal.

    Otherwise, or on a terminal without control codes or too narrow for the headings and numbers,
    print plain text with one line per row.

    Args:
        columns: headings of the columns.
        rows: the cells of each row.
        numbers: headings of the columns that are aligned to the right and never wrapped.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    texts = [
        [name, *cells] if name in numbers else [name]
        for name, *cells in zip(columns, *rows, strict=True)
    ]
    width = sum(_GAP + max(map(len, column)) for column in texts)
    if not console.is_terminal or console.is_dumb_terminal or console.width < width:
        align = "".join(">" if name in numbers else "<" for name in columns)
        print("\n".join(aligned([columns, *rows], align)))
        return
    table = Table(box=None, header_style="bold", padding=(0, _GAP, 0, 0))
    for name in columns:
        is_number = name in numbers
        table.add_column(
            name, overflow="fold", justify="right" if is_number else "left", no_wrap=is_number
        )
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
