"""``energy-callbacks doctor``: shows which sensors work, and why other sensors do not."""

import argparse
import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from energy_callbacks.accounting.grid.grid import check_grid, grid
from energy_callbacks.core import formatting
from energy_callbacks.core.config import EnergyConfig, settings_in_use
from energy_callbacks.core.errors import SourceError, SourceUnavailable
from energy_callbacks.core.records import Channel, Reading
from energy_callbacks.core.settings import layers
from energy_callbacks.core.units import gibibytes, megahertz
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.sensing.sources.protocol import Source

if TYPE_CHECKING:
    from rich.console import RenderableType

HELP = "show which sensors were found, and how to get those that were not"
_SHARES: Final = ("utilisation", "sm_active", "sm_occupancy", "tensor_active", "dram_active")
_SIZES: Final = ("memory_used", "rss", "allocated", "peak_allocated")
_UNITS: Final[Mapping[str, str]] = (
    {"power": "W", "energy": "J", "temperature": "°C", "clock": "Hz", "throttled": "s"}
    | dict.fromkeys(_SIZES, "byte")
    | dict.fromkeys(_SHARES, "share")
)
# Minimum widths of columns in characters, so that the tables of all devices are aligned.
_QUANTITY_WIDTH, _VALUE_WIDTH = 16, 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--country", help="check this place, as country= would")
    parser.add_argument("--region", help="check this region, as region= would")


def run(arguments: argparse.Namespace) -> int:
    """Open every sensor, read it twice, and print the values and the unavailable sensors."""
    findings = examine(arguments.country, arguments.region)
    if arguments.json:
        print(json.dumps(findings, indent=2))
    else:
        _print(findings)
    return 0


def examine(country: str | None = None, region: str | None = None) -> dict[str, Any]:
    """Return the channels of all sensors, the unavailable sensors, and the carbon intensity.

    Args:
        country: ISO code or name of the country of this machine; ``None`` for the country in
            CodeCarbon's configuration.
        region: state of the USA or province of Canada; ``None`` for the whole country or, without
            ``country``, for the configured region.

    Returns:
        JSON types: lists under ``channels``, ``unavailable`` and ``settings``, and
        ``carbon.Intensity`` as a dictionary under ``grid``.

    Raises:
        ValueError: if the country or region is unknown, if a region is given without a country, or
            if a setting in the environment or in a file is invalid.
        TypeError: if such a setting has the wrong type.
    """
    from energy_callbacks.sensing.discovery import discover

    config = EnergyConfig(country=country, region=region)
    check_grid(config)
    sensors = discover(SystemClock(), devices="all")
    channels: list[dict[str, Any]] = []
    missing = list(sensors.unavailable)
    for source in sensors.sources:
        try:
            channels += _examine(source)
        except SourceUnavailable as error:
            missing.append((source.name, error.reason, error.fix))
        finally:
            source.close()
    return {
        "channels": channels,
        "unavailable": [
            {"source": source, "reason": reason, "fix": fix} for source, reason, fix in missing
        ],
        "settings": [
            {"name": name, "value": _json_value(value), "origin": origin}
            for name, (value, origin) in settings_in_use(config).items()
        ],
        "grid": asdict(grid(config).at(time.time()).intensity),
    }


def _json_value(value: object) -> Any:
    return str(value) if isinstance(value, Path) else value


def _examine(source: Source) -> list[dict[str, Any]]:
    """Return a description of each channel of a source, with the newest value of two reads.

    Raises:
        SourceUnavailable: if the source cannot be opened.
    """
    channels = source.open()
    readings: list[Reading] = []
    for pause_s in (source.interval_s, 0.0):
        with contextlib.suppress(SourceError):
            readings += source.read()
        time.sleep(pause_s)
    newest = {reading.channel: reading.value for reading in readings}
    return [_describe(source, channel, newest.get(channel)) for channel in channels]


def _describe(source: Source, channel: Channel, value: float | None) -> dict[str, Any]:
    device, sensor = channel.device, channel.sensor
    return {
        "source": source.name,
        "device": device.key,
        "name": device.name,
        "scope": device.scope,
        "quantity": channel.quantity,
        "unit": _UNITS[channel.quantity],
        "origin": device.origin,
        "value": value,
        "sensor": sensor.name if sensor else None,
        "relative_error": sensor.relative_error if sensor else None,
        "notes": list(device.notes),
    }


def _print(findings: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text("What will be measured, and what estimated", style="bold"))
    for _, channels in groupby(findings["channels"], key=itemgetter("source", "device")):
        console.print(*_device(list(channels)), sep="\n")
    for missing in findings["unavailable"]:
        console.print()
        reason = f"{missing['source']}: {missing['reason']}"
        console.print(Text.assemble(("Not measured: ", "bold"), reason))
        if missing["fix"]:
            fix = Text(f"to change that: {missing['fix']}", style="dim")
            console.print(Padding(fix, (0, 0, 0, 2)))
    console.print()
    for part in _settings(findings["settings"]):
        console.print(part)
    console.print()
    console.print(Text(_grid_text(findings["grid"])))


def _settings(settings: list[dict[str, Any]]) -> "Iterator[RenderableType]":
    """Yield a line for each setting that is not a default, with its origin."""
    from rich.padding import Padding
    from rich.text import Text

    found = [one for one in settings if one["origin"] != layers.DEFAULT]
    yield Text("Settings", style="bold")
    for one in found:
        value = Text(f"{one['name']} = {one['value']!r}")
        yield Padding(value.append(f"  from {one['origin']}", style="dim"), (0, 0, 0, 2))
    yield Text(f"  {'all others' if found else 'all'}: defaults")


def _device(channels: list[dict[str, Any]]) -> "Iterator[RenderableType]":
    """Yield a line with the device, a table of its quantities, and a line for each note."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    first = channels[0]
    about = f"({', '.join(word for word in (first['scope'], first['origin']) if word)})"
    style = "green" if first["origin"] == "measured" else "yellow"
    yield Text.assemble("\n", (first["device"], "bold"), f" {first['name']} ", (about, style))
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=_QUANTITY_WIDTH)
    table.add_column(justify="right", min_width=_VALUE_WIDTH, no_wrap=True)
    table.add_column(style="dim")
    sensors = [channel["sensor"] or "-" for channel in channels]
    for channel, sensor, before in zip(channels, sensors, [None, *sensors], strict=False):
        table.add_row(
            Text(f"  {channel['quantity'].replace('_', ' ')}"),
            Text(_with_unit(channel["value"], channel["unit"])),
            Text("same" if sensor == before else sensor),
        )
    yield table
    for note in first["notes"]:
        yield Padding(Text(note, style="dim"), (0, 0, 0, 2))


def _with_unit(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    shown = {
        "byte": f"{gibibytes(value):.2f} GiB",
        "Hz": f"{megahertz(value):.0f} MHz",
        "J": formatting.energy(value),
        "share": f"{100.0 * value:.0f} %",
    }
    return shown.get(unit, f"{value:.4g} {unit}")


def _grid_text(grid: dict[str, Any]) -> str:
    low, high = (round(grid[f"{end}_kg_per_kwh"] * 1e3) for end in ("low", "high"))
    if grid["kg_per_kwh"] is None:
        return (
            f"grid: place unknown, so emissions will be an interval ({low} to {high} g/kWh); "
            "to change that: pass country='DEU', say"
        )
    place = grid["place"] or "place unknown"
    return f"grid: {place}, {grid['kg_per_kwh'] * 1e3:.0f} g/kWh ({grid['source']})"
