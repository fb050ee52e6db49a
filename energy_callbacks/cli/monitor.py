"""``energy-callbacks monitor``: all devices of this machine, live."""

import argparse
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from energy_callbacks.core import formatting
from energy_callbacks.core.units import megahertz
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.sensing.sampler import Notice
from energy_callbacks.sensing.watch import DeviceLook, Watch

if TYPE_CHECKING:
    from rich.table import Table

HELP = "show power, energy, load, memory and processes of all devices, live"
_SHOWN_PROCESSES: Final = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--json", action="store_true", help="a JSON object a line, for machines")
    parser.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="S", help="between looks (default: 1)"
    )
    parser.add_argument(
        "--seconds", type=_seconds, metavar="S", help="end after so long (default: at Ctrl-C)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Look until the time is over, or Ctrl-C."""
    from energy_callbacks.sensing.discovery import discover

    clock = SystemClock()
    found = discover(clock, devices="all")
    watch = Watch(found.sources, clock)
    watch.start()
    try:
        looks = _looks(watch, arguments.interval, arguments.seconds)
        if arguments.json:
            for devices in looks:
                print(json.dumps(as_json(watch.elapsed_s, devices)), flush=True)
        else:
            _show(watch, looks, found.unavailable)
    except KeyboardInterrupt:
        pass  # how one ends it
    finally:
        watch.stop()
    return 0


def _seconds(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, got {word!r}")
    return value


def _looks(watch: Watch, interval_s: float, most_s: float | None) -> Iterator[list[DeviceLook]]:
    due_s = interval_s
    while True:
        last = most_s is not None and due_s >= most_s
        time.sleep(max((most_s if last and most_s else due_s) - watch.elapsed_s, 0.0))
        yield watch.look()
        if last:
            return
        due_s = max(due_s + interval_s, watch.elapsed_s)


def as_json(elapsed_s: float, devices: list[DeviceLook]) -> dict[str, Any]:
    """One look, with SI units; ``null`` is not known."""
    return {
        "unix_s": time.time(),
        "elapsed_s": elapsed_s,
        "devices": [
            {
                "device": look.device.key,
                "name": look.device.name,
                "uuid": look.device.uuid,
                "scope": look.device.scope,
                "origin": look.device.origin,
                "power_w": look.power_w,
                "energy_j": look.energy.energy_j,
                "energy_error_j": look.energy.error_j,
                "utilisation": look.utilisation,
                "memory_used_bytes": look.memory_used_bytes,
                "temperature_c": look.temperature_c,
                "clock_hz": look.clock_hz,
                "throttled_s": look.throttled_s,
                "processes": [
                    {"pid": one.pid, "name": one.name, "memory_bytes": one.memory_bytes}
                    for one in look.processes
                ],
            }
            for look in devices
        ],
    }


def _show(
    watch: Watch, looks: Iterator[list[DeviceLook]], missing: tuple[tuple[str, str, str], ...]
) -> None:
    """A table that stays in its place; one after the other if the output is no terminal."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    for source, reason, _ in missing:
        console.print(f"not measured: {source}: {reason}", markup=False, style="dim")
    if missing:
        console.print("energy-callbacks doctor says how to change that", style="dim")
    if not console.is_terminal or console.is_dumb_terminal:
        for devices in looks:
            console.print(_table(watch.elapsed_s, devices, watch.problems))
        return
    with Live(console=console, auto_refresh=False) as live:
        for devices in looks:
            live.update(_table(watch.elapsed_s, devices, watch.problems), refresh=True)


def _table(elapsed_s: float, devices: list[DeviceLook], problems: tuple[Notice, ...]) -> "Table":
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        caption=f"{formatting.duration(elapsed_s)} watched; ~ is estimated. Ctrl-C ends.",
        caption_justify="left",
    )
    table.add_column("device", max_width=26, no_wrap=True)
    for name in ("power", "energy", "busy", "memory", "°C", "MHz"):
        table.add_column(name, justify="right", no_wrap=True)
    for look in devices:
        table.add_row(
            f"[bold]{escape(look.device.key)}[/] {escape(look.device.name)}", *_cells(look)
        )
        for one in look.processes[:_SHOWN_PROCESSES]:
            name = escape(one.name or "outside")
            held = formatting.size(one.memory_bytes) if one.memory_bytes else ""
            table.add_row(f"  [dim]{one.pid} {name}[/]", "", "", "", held, "", "")
        if len(look.processes) > _SHOWN_PROCESSES:
            table.add_row(f"  [dim]and {len(look.processes) - _SHOWN_PROCESSES} more[/]")
        if look.throttled_s:
            table.add_row(f"  [yellow]throttled for {formatting.duration(look.throttled_s)}[/]")
    for notice in problems:
        table.add_row(f"[red]{escape(notice.source)}[/]: {escape(notice.message)}")
    return table


def _cells(look: DeviceLook) -> tuple[str, ...]:
    about = "[yellow]~[/]" if look.device.origin == "estimated" else ""

    def shown(value: float | None, text: str) -> str:
        return "-" if value is None else text

    return (
        shown(look.power_w, f"{about}{formatting.power(look.power_w)}"),
        shown(look.energy.energy_j, f"{about}{formatting.energy(look.energy.energy_j)}"),
        shown(look.utilisation, f"{100 * (look.utilisation or 0.0):.0f} %"),
        shown(look.memory_used_bytes, formatting.size(look.memory_used_bytes)),
        shown(look.temperature_c, f"{look.temperature_c or 0.0:.0f}"),
        shown(look.clock_hz, f"{megahertz(look.clock_hz or 0.0):.0f}"),
    )
