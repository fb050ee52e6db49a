"""Prints a report with rich in a terminal, and as plain text elsewhere.

The output with rich leaves out the list of sensors and the notes on method.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from energy_callbacks.core import formatting
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render import answer, text
from energy_callbacks.report.render.headline import cards
from energy_callbacks.report.render.tables import energy_tables, run_tables

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_STATUS_STYLES = {
    "finished": "green",
    "running": "cyan",
    "failed": "red",
    "interrupted": "yellow",
    "cut off": "yellow",
}
# Width of the frame and its margins, in characters.
_FRAME = 6
_ORIGIN_STYLES = {"measured": "green", "estimated": "yellow", "mixed": "cyan"}


def print_report(report: EnergyReport, console: "Console | None" = None) -> None:
    """Print the report with rich; as plain text if the output is a dumb terminal or no terminal.

    Args:
        report: the report.
        console: the console to print to; ``None`` for the standard output.
    """
    from rich.console import Console

    console = console or Console()
    if not console.is_terminal or console.is_dumb_terminal:
        plain = text.render(report)
        console.print(plain, markup=False, emoji=False, highlight=False, soft_wrap=True, end="")
    else:
        print_rich(report, console)


def print_rich(report: EnergyReport, console: "Console") -> None:
    """Print the answer, warnings, advice, headline, notes and tables in a frame."""
    from rich.console import Group
    from rich.panel import Panel

    blocks = Group(*_blocks(report, console.width - _FRAME))
    title = _title(report)
    console.print(
        Panel(blocks, title=title, title_align="left", border_style="dim", padding=(1, 2))
    )


def _title(report: EnergyReport) -> "Text":
    from rich.text import Text

    run = report.run
    status = Text(run.status, style=_STATUS_STYLES[run.status])
    name = formatting.one_line(run.name or run.run_id)[:48]
    return Text.assemble(("Energy report: ", "bold"), (name, "bold"), "  ", status)


def _blocks(report: EnergyReport, width: int) -> "Iterator[RenderableType]":
    from rich.text import Text

    if report.run.job:
        yield _dim(report.run.job.label)
    yield Text(formatting.one_line(answer.answer(report)), style="bold")
    for warning in answer.warnings(report):
        line = Text.assemble(("! ", "bold yellow"), formatting.one_line(warning.message))
        if warning.fix:
            line.append(f" → {formatting.one_line(warning.fix)}", style="dim")
        yield line
    yield Text("\nWhat to change", style="bold")
    yield from (Text(formatting.one_line(line)) for line in text.advice_lines(report))
    yield Text()
    yield _headline(report)
    if notes := text.note_lines(report):
        yield Text("\nNotes", style="bold")
        yield from map(_dim, notes)
    for section in (*energy_tables(report), *run_tables(report)):
        if section.rows:
            yield Text(f"\n{section.title}", style="bold")
            yield _table(text.fitted(section, width))
        yield from map(_dim, (*section.notes, *section.remarks, *section.lines))


def _dim(line: str) -> "Text":
    from rich.text import Text

    return Text(formatting.one_line(line), style="dim")


def _headline(report: EnergyReport) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for card in cards(report):
        detail = _dim(card.detail)
        if card.origin is not None:
            badge = Text(card.origin, style=_ORIGIN_STYLES[card.origin])
            detail = Text(", ", style="dim").join(part for part in (badge, detail) if part)
        table.add_row(Text(card.label), Text(formatting.one_line(card.value), style="bold"), detail)
    return table


def _table(cells: Sequence[Sequence[str]]) -> "Table":
    """Return a table headed by the first row of ``cells``, spaced like the plain-text report."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for column, name in enumerate(cells[0]):
        table.add_column(Text(name), justify="right" if column else "left", no_wrap=True)
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    return table
