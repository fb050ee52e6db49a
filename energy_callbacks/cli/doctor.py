"""``energy-callbacks doctor``: what will be measured here, what estimated, and why not the rest."""

import argparse
import contextlib
import dataclasses
import json
import time
from typing import Any, Final

from energy_callbacks.errors import SourceError, SourceUnavailable
from energy_callbacks.records import Channel, Reading
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.sensing.sources.protocol import Source
from energy_callbacks.units import gibibytes, megahertz

HELP = "show which sensors were found, and how to get those that were not"
_UNITS: Final = {
    "power": "W",
    "energy": "J",
    "memory_used": "byte",
    "utilisation": "share",
    "sm_active": "share",
    "sm_occupancy": "share",
    "tensor_active": "share",
    "dram_active": "share",
    "temperature": "°C",
    "clock": "Hz",
    "throttled": "s",
    "rss": "byte",
    "allocated": "byte",
    "peak_allocated": "byte",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The doctor's own options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--country", help="check this place, as country= would")
    parser.add_argument("--region", help="check this region, as region= would")


def run(arguments: argparse.Namespace) -> int:
    """Open every sensor, read it for a second, and say what was found."""
    findings = examine(arguments.country, arguments.region)
    if arguments.json:
        print(json.dumps(findings, indent=2))
    else:
        _print(findings)
    return 0


def examine(country: str | None = None, region: str | None = None) -> dict[str, Any]:
    """Everything the doctor knows, ready for JSON.

    Raises:
        ValueError: for a place that is not known.
    """
    from energy_callbacks.accounting import carbon
    from energy_callbacks.sensing.sources import discover

    found = discover(SystemClock(), devices="all")
    channels: list[dict[str, Any]] = []
    missing = [
        {"source": source, "reason": reason, "fix": fix}
        for source, reason, fix in found.unavailable
    ]
    for source in found.sources:
        try:
            channels += _examine(source)
        except SourceUnavailable as error:
            missing.append({"source": source.name, "reason": error.reason, "fix": error.fix})
        finally:
            source.close()
    intensity = carbon.intensity(carbon.place(country, region))
    return {
        "channels": channels,
        "unavailable": missing,
        "grid": dataclasses.asdict(intensity),
    }


def _examine(source: Source) -> list[dict[str, Any]]:
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
    from rich.table import Table

    console = Console(highlight=False)
    console.print("[bold]What will be measured, and what estimated[/]")
    table = Table("device", "scope", "origin", "now", "by")
    seen = None
    for channel in findings["channels"]:
        is_new, seen = channel["device"] != seen, channel["device"]
        table.add_row(
            f"[bold]{channel['device']}[/] {channel['name']}" if is_new else "",
            (channel["scope"] or "-") if is_new else "",
            channel["origin"] if is_new else "",
            f"{channel['quantity']} {_with_unit(channel['value'], channel['unit'])}",
            channel["sensor"] or "-",
        )
    console.print(table)
    for missing in findings["unavailable"]:
        console.print(f"[bold]Not measured[/]: {missing['source']}: {missing['reason']}")
        if missing["fix"]:
            console.print(f"  to change that: {missing['fix']}")
    console.print(_grid_words(findings["grid"]))


def _with_unit(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "byte":
        return f"{gibibytes(value):.2f} GiB"
    return f"{megahertz(value):.0f} MHz" if unit == "Hz" else f"{value:.4g} {unit}"


def _grid_words(grid: dict[str, Any]) -> str:
    low, high = (round(grid[f"{end}_kg_per_kwh"] * 1e3) for end in ("low", "high"))
    if grid["kg_per_kwh"] is None:
        return (
            f"grid: place unknown, so emissions will be an interval ({low} to {high} g/kWh); "
            "to change that: pass country='DEU', say"
        )
    return f"grid: {grid['place']}, {grid['kg_per_kwh'] * 1e3:.0f} g/kWh ({grid['source']})"
