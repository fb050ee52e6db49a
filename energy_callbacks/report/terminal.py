"""The report in a terminal, with rich: the same words as the plain text, in colour."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from energy_callbacks.report import text, words
from energy_callbacks.report.cards import Card, cards
from energy_callbacks.report.schema import EnergyReport

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
_ORIGIN_STYLES = {"measured": "green", "estimated": "yellow", "mixed": "cyan"}


def print_rich(report: EnergyReport, console: "Console") -> None:
    """Print warnings, headline and tables."""
    from rich.console import Group
    from rich.panel import Panel

    console.print(
        Panel(
            Group(*_blocks(report)),
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
    name = words.one_line(run.name or run.run_id)[:48]
    return Text.assemble(("Energy report: ", "bold"), (name, "bold"), "  ", status)


def _blocks(report: EnergyReport) -> "Iterator[RenderableType]":
    from rich.text import Text

    for warning in report.warnings:
        line = Text.assemble(("! ", "bold yellow"), words.one_line(warning.message))
        if warning.fix:
            line.append(f" → {words.one_line(warning.fix)}", style="dim")
        yield line
    if report.warnings:
        yield Text()
    yield _headline(cards(report))
    yield from _table("Energy by phase", text.PHASE_HEAD, text.phase_rows(report))
    yield from _table("Energy per unit of work", text.RATIO_HEAD, text.ratio_rows(report))
    yield from _table("GPU activity", text.ACTIVITY_HEAD, text.activity_rows(report))
    yield from _table("Devices", text.DEVICE_HEAD, text.device_rows(report))
    for note in text.device_notes(report):
        yield Text(words.one_line(note), style="dim")
    yield from _table("Attempts", text.ATTEMPT_HEAD, text.attempt_rows(report))
    yield from _table("Ranks", text.RANK_HEAD, text.rank_rows(report))
    for one in report.imbalances:
        yield Text(words.one_line(one.message))


def _headline(shown: Sequence[Card]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for card in shown:
        detail = Text(words.one_line(card.detail), style="dim")
        if card.origin is not None:
            badge = Text(card.origin, style=_ORIGIN_STYLES[card.origin])
            detail = Text(", ", style="dim").join(part for part in (badge, detail) if part)
        table.add_row(Text(card.label), Text(words.one_line(card.value), style="bold"), detail)
    return table


def _table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]]
) -> "Iterator[RenderableType]":
    if not rows:
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column, name in enumerate(head):
        table.add_column(name, justify="right" if column else "left", no_wrap=column > 0)
    for row in rows:
        table.add_row(*(Text(words.one_line(cell)) for cell in row))
    yield Text(f"\n{title}", style="bold")
    yield table
