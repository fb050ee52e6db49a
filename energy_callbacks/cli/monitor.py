"""``energy-callbacks monitor``: shows the state of all devices of this machine, live."""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from energy_callbacks.cli.common import options
from energy_callbacks.core import formatting
from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.formatting import or_dash
from energy_callbacks.core.units import megahertz
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.sensing.sampler import Notice
from energy_callbacks.sensing.watch import DeviceLook, Watch

if TYPE_CHECKING:
    from rich.table import Table

HELP = "show power, energy, load, memory and processes of all devices until Ctrl-C"
# Maximum number of processes per device in the table.
_SHOWN_PROCESSES: Final = 3
# Fields of ``Device`` and of ``DeviceLook`` that the JSON output contains under the same names.
_DEVICE: Final = ("name", "uuid", "scope", "origin")
_GAUGES: Final = (
    "utilisation", "memory_used_bytes", "memory_utilisation", "temperature_c", "clock_hz",
    "memory_clock_hz", "throttled_s",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add(
        "--interval",
        type=options.seconds,
        default=1.0,
        metavar="S",
        help="interval between two updates in seconds (default: 1)",
    )
    add(
        "--seconds",
        type=options.seconds,
        metavar="S",
        help="end after this time in seconds (default: run until Ctrl-C)",
    )
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the state of the devices repeatedly, for ``--seconds`` or until Ctrl-C; return 0."""
    from energy_callbacks.sensing.discovery import discover

    clock = SystemClock()
    sensors = discover(clock, devices="all", machine_power=EnergyConfig().machine_power)
    watch = Watch(sensors.sources, clock)
    watch.start()
    try:
        looks = _looks(watch, arguments.interval, arguments.seconds)
        if arguments.json:
            for devices in looks:
                print(json.dumps(as_json(watch.elapsed_s, devices)), flush=True)
        else:
            _show(watch, looks, () if arguments.quiet else sensors.unavailable)
    except KeyboardInterrupt:
        pass  # the usual way to end this command
    finally:
        watch.stop()
    return 0


def _looks(watch: Watch, interval_s: float, total_s: float | None) -> Iterator[list[DeviceLook]]:
    """Yield the state of all devices at regular intervals; the last state is that at ``total_s``.

    Args:
        watch: provides the state of the devices.
        interval_s: time between two states, s; longer if reading and showing a state takes longer.
        total_s: time of the last state, in s since ``watch`` was created; ``None`` for no end.
    """
    end_s = float("inf") if total_s is None else total_s
    due_s = interval_s
    is_last = False
    while not is_last:
        is_last = due_s >= end_s
        time.sleep(max(min(due_s, end_s) - watch.elapsed_s, 0.0))
        yield watch.look()
        due_s = max(due_s + interval_s, watch.elapsed_s)


def as_json(elapsed_s: float, devices: list[DeviceLook]) -> dict[str, Any]:
    """Return the state of all devices as JSON types; unknown values are ``None``.

    Units are SI units and degrees Celsius, as in ``DeviceLook``.

    Args:
        elapsed_s: time since the start of the measurement, s.
        devices: state of each device.
    """
    return {
        "unix_s": time.time(),
        "elapsed_s": elapsed_s,
        "devices": [
            {
                "device": look.device.key,
                **{name: getattr(look.device, name) for name in _DEVICE},
                "power_w": look.power_w,
                "energy_j": look.energy.energy_j,
                "energy_error_j": look.energy.error_j,
                **{name: getattr(look, name) for name in _GAUGES},
                "processes": [asdict(process) for process in look.processes],
            }
            for look in devices
        ],
    }


def _show(
    watch: Watch, looks: Iterator[list[DeviceLook]], missing: tuple[tuple[str, str, str], ...]
) -> None:
    """Show the states in a table that is updated; without a terminal, print a table per state.

    Args:
        watch: provides the elapsed time and the problems of sources.
        looks: the states; each is a list with the state of all devices.
        missing: name, reason and remedy of each sensor that cannot be read.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, emoji=False)
    for source, reason, _ in missing:
        console.print(f"not measured: {source}: {reason}", markup=False, style="dim")
    if missing:
        console.print("energy-callbacks doctor shows how to change this", style="dim")
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
        caption=f"{formatting.duration(elapsed_s)} elapsed; ~: estimated. Press Ctrl-C to end.",
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
            name = escape(one.name or "unknown")
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
    mark = "[yellow]~[/]" if look.device.origin == "estimated" else ""
    return (
        or_dash(look.power_w, lambda power_w: f"{mark}{formatting.power(power_w)}"),
        or_dash(look.energy.energy_j, lambda energy_j: f"{mark}{formatting.energy(energy_j)}"),
        or_dash(look.utilisation, lambda share: f"{100 * share:.0f} %"),
        or_dash(look.memory_used_bytes, formatting.size),
        or_dash(look.temperature_c, "{:.0f}".format),
        or_dash(look.clock_hz, lambda clock_hz: f"{megahertz(clock_hz):.0f}"),
    )
