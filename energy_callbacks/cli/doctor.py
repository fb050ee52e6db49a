"""``energy-callbacks doctor``: shows which sensors work, and why other sensors do not."""

import argparse
import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from energy_callbacks.accounting.grid.grid import check_grid, grid
from energy_callbacks.cli.common import options
from energy_callbacks.cli.common.messages import logger
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

HELP = "show which sensors work on this machine, and why others do not"
# Quantities from which the energy of a device is computed.
_ENERGY: Final = ("power", "energy")
_SHARES: Final = (
    "utilisation", "sm_active", "sm_occupancy", "tensor_active", "dram_active",
    "memory_utilisation",
)  # fmt: skip
_SIZES: Final = ("memory_used", "rss", "allocated", "peak_allocated")
_UNITS: Final[Mapping[str, str]] = (
    {
        "power": "W",
        "energy": "J",
        "temperature": "°C",
        "clock": "Hz",
        "memory_clock": "Hz",
        "power_limit": "W",
        "throttled": "s",
    }
    | dict.fromkeys(_SIZES, "byte")
    | dict.fromkeys(_SHARES, "share")
)
# Source, reason and fix on a machine without any GPU whose sensors are files.
_NO_OTHER_GPU: Final = (
    "AMD or Intel GPU",
    "no such GPU is in /sys/class/drm",
    (
        "load its driver (amdgpu, i915 or xe); in a container that hides it, mount the host's /sys "
        "to another path and set ENERGY_CALLBACKS_SYSFS to that path"
    ),
)
# Minimum widths of columns in characters, so that the tables of all devices are aligned.
_QUANTITY_WIDTH, _VALUE_WIDTH = 18, 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    options.add_location(parser)
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 if the energy of no GPU is measured"
    )
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Open every sensor, read it twice, and print the values and the unavailable sensors.

    Returns:
        1 with ``--strict`` if no GPU is measured; otherwise 0.
    """
    findings = examine(arguments.country, arguments.region)
    with options.until_reader_ends():
        if arguments.json:
            options.print_json(findings)
        else:
            _print(findings)
    if arguments.strict and not findings["measured_gpus"]:
        logger.error("energy-callbacks doctor: no GPU is measured")
        return 1
    return 0


def examine(country: str | None = None, region: str | None = None) -> dict[str, Any]:
    """Return the channels of all sensors, the unavailable sensors, and the carbon intensity.

    Args:
        country: ISO code or name of the country of this machine; ``None`` for the country in
            CodeCarbon's configuration.
        region: state of the USA or province of Canada; ``None`` for the whole country or, without
            ``country``, for the configured region.

    Returns:
        JSON types: under ``summary`` a sentence, under ``measured_gpus`` the keys of GPUs whose
        energy or power is known, lists under ``channels``, ``unavailable`` and ``settings``, and
        ``carbon.Intensity`` as a dictionary under ``grid``.

    Raises:
        ValueError: if the country or region is unknown, if a region is given without a country, or
            if a setting in the environment or in a file is invalid.
        TypeError: if such a setting has the wrong type.
    """
    from energy_callbacks.sensing.discovery import discover
    from energy_callbacks.sensing.gpus.drm_gpus import inventory
    from energy_callbacks.sensing.sources.sysfs.family import sysfs_root

    config = EnergyConfig(country=country, region=region)
    check_grid(config)
    sensors = discover(SystemClock(), devices="all", machine_power=config.machine_power)
    channels: list[dict[str, Any]] = []
    missing = list(sensors.unavailable)
    for source in sensors.sources:
        try:
            channels += _examine(source)
        except SourceUnavailable as error:
            missing.append((source.name, error.reason, error.fix))
        finally:
            source.close()
    if not inventory(sysfs_root()) and not any(one["scope"] == "gpu" for one in channels):
        missing.append(_NO_OTHER_GPU)
    intensity = asdict(grid(config).at(time.time()).intensity)
    known = [one for one in channels if one["quantity"] in _ENERGY and one["value"] is not None]
    return {
        "summary": _summary(known, intensity),
        "measured_gpus": _keys(one for one in known if one["scope"] == "gpu"),
        "channels": channels,
        "unavailable": [
            {"source": source, "reason": reason, "fix": fix} for source, reason, fix in missing
        ],
        "settings": [
            {"name": name, "value": _json_value(value), "origin": origin}
            for name, (value, origin) in settings_in_use(config).items()
        ],
        "grid": intensity,
    }


def _json_value(value: object) -> Any:
    return str(value) if isinstance(value, Path) else value


def _keys(channels: Iterable[dict[str, Any]], origin: str = "measured") -> list[str]:
    """Return the keys of the devices of channels with an origin, each once."""
    return list(dict.fromkeys(one["device"] for one in channels if one["origin"] == origin))


def _summary(known: list[dict[str, Any]], intensity: dict[str, Any]) -> str:
    """Return in one line which devices are measured, which are estimated, and the location.

    Args:
        known: the channels of energy and power with a value.
        intensity: ``carbon.Intensity`` as a dictionary.
    """
    measured, estimated = (_keys(known, origin) for origin in ("measured", "estimated"))
    parts = [
        "" if any(one["scope"] == "gpu" for one in known) else "No GPU is measured.",
        f"Measured: {', '.join(measured)}." if measured else "",
        f"Estimated: {', '.join(estimated)}." if estimated else "",
        f"Location: {intensity['place'] or 'not set'}.",
    ]
    return " ".join(part for part in parts if part)


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
    from rich.text import Text

    console = Console(highlight=False, emoji=False)
    console.print(Text(findings["summary"], style="bold"))
    for section in (_devices, _unavailable, _settings, _grid):
        for part in section(findings):
            console.print(part)


def _devices(findings: dict[str, Any]) -> "Iterator[RenderableType]":
    for _, channels in groupby(findings["channels"], key=itemgetter("source", "device")):
        yield from _device(list(channels))


def _unavailable(findings: dict[str, Any]) -> "Iterator[RenderableType]":
    from rich.padding import Padding
    from rich.text import Text

    for missing in findings["unavailable"]:
        reason = f"{missing['source']}: {missing['reason']}"
        yield Text.assemble(("\nNot measured: ", "bold"), reason)
        if missing["fix"]:
            yield Padding(Text(f"to fix this: {missing['fix']}", style="dim"), (0, 0, 0, 2))


def _grid(findings: dict[str, Any]) -> "Iterator[RenderableType]":
    from rich.text import Text

    yield Text.assemble(("\nCarbon intensity: ", "bold"), _grid_text(findings["grid"]))


def _settings(findings: dict[str, Any]) -> "Iterator[RenderableType]":
    """Yield a line for each setting that is not a default, with its origin."""
    from rich.padding import Padding
    from rich.text import Text

    found = [one for one in findings["settings"] if one["origin"] != layers.DEFAULT]
    yield Text("\nSettings", style="bold")
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
    table.add_column(style="dim", overflow="fold")
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
            f"{low} to {high} g/kWh, because the location is not set; to fix this: pass country=, "
            "such as country='DEU'"
        )
    place = grid["place"] or "location not set"
    return f"{place}, {grid['kg_per_kwh'] * 1e3:.0f} g/kWh ({grid['source']})"
