"""The report in a terminal, with rich: the same words as the plain text, in colour."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from energy_callbacks.core import formatting
from energy_callbacks.report.charts.profile_sections import sections
from energy_callbacks.report.model import batch_sizes
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render import text
from energy_callbacks.report.render.headline import HeadlineCard, cards

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
# Columns of a frame with its margins, left and right.
_FRAME = 6
_ORIGIN_STYLES = {"measured": "green", "estimated": "yellow", "mixed": "cyan"}


def print_report(report: EnergyReport, console: "Console | None" = None) -> None:
    """Print the report: with rich in a terminal, plain if the output is no terminal.

    Args:
        report: what to print.
        console: where to; ``None`` is the standard output.
    """
    from rich.console import Console

    console = console or Console()
    if not console.is_terminal or console.is_dumb_terminal:
        console.print(text.render(report), markup=False, highlight=False, soft_wrap=True, end="")
    else:
        print_rich(report, console)


def print_rich(report: EnergyReport, console: "Console") -> None:
    """Print warnings, headline and tables."""
    from rich.console import Group
    from rich.panel import Panel

    console.print(
        Panel(
            Group(*_blocks(report, console.width - _FRAME)),
            title=_title(report),
            title_align="left",
            border_style="dim",
            padding=(1, 2),
        )
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
        yield Text(formatting.one_line(report.run.job.label), style="dim")
    for warning in report.warnings:
        line = Text.assemble(("! ", "bold yellow"), formatting.one_line(warning.message))
        if warning.fix:
            line.append(f" → {formatting.one_line(warning.fix)}", style="dim")
        yield line
    if report.warnings:
        yield Text()
    yield _headline(cards(report))
    if report.advice:
        yield Text("\nWhat to change", style="bold")
        yield from (Text(formatting.one_line(line)) for line in text.advice_lines(report))
    for title, head, rows, remarks in _tables(report):
        if rows:
            yield Text(f"\n{title}", style="bold")
            yield _table(text.fitted(head, rows, width))
        yield from (Text(formatting.one_line(remark), style="dim") for remark in remarks)


def _tables(
    report: EnergyReport,
) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]], Iterable[str]]]:
    """Title, head and rows of each table, and what is said below it."""
    yield "Energy by phase", text.PHASE_HEAD, text.phase_rows(report), ()
    yield "Energy per unit of work", text.RATIO_HEAD, text.ratio_rows(report), ()
    yield "GPU activity", text.ACTIVITY_HEAD, text.activity_rows(report), ()
    yield "Devices", text.DEVICE_HEAD, text.device_rows(report), text.device_notes(report)
    yield "Attempts", text.ATTEMPT_HEAD, text.attempt_rows(report), text.attempt_jobs(report)
    uneven = (one.message for one in report.imbalances)
    yield "Ranks", text.RANK_HEAD, text.rank_rows(report), uneven
    for curve in report.batch_sizes:
        rows = list(batch_sizes.rows(curve))
        yield "Batch size", batch_sizes.HEAD, rows, (curve.sentence,)
    for one in sections(report.profile):
        yield one.title, one.head or ("",), one.rows, (*one.remarks, *one.lines)


def _headline(shown: Sequence[HeadlineCard]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for card in shown:
        detail = Text(formatting.one_line(card.detail), style="dim")
        if card.origin is not None:
            badge = Text(card.origin, style=_ORIGIN_STYLES[card.origin])
            detail = Text(", ", style="dim").join(part for part in (badge, detail) if part)
        table.add_row(Text(card.label), Text(formatting.one_line(card.value), style="bold"), detail)
    return table


def _table(cells: Sequence[Sequence[str]]) -> "Table":
    """Cells that fit, head first; like the plain text two characters apart."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for column, name in enumerate(cells[0]):
        table.add_column(Text(name), justify="right" if column else "left", no_wrap=True)
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    return table
