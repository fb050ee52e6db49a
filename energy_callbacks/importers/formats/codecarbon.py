"""CodeCarbon's ``emissions.csv``: totals of runs, one row each; ``emissions.csv#RUN_ID`` is one.

Rows of one ``run_id`` are states of one run, each with all before it: the last one counts.
Energies are kWh with the PUE in them, which is taken out again if the row names it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.accounting.metrics.energy_sums import UNKNOWN
from energy_callbacks.core.records import Channel, Device, Energy, Origin, Scope, Sensor
from energy_callbacks.core.units import joules_from_kilowatt_hours
from energy_callbacks.importers import files
from energy_callbacks.importers import journal_lines as lines
from energy_callbacks.importers.detection import chosen
from energy_callbacks.importers.journal_lines import About
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.values import (
    above_0,
    at_least_0,
    moment,
    number,
    unix_s,
    words,
)

NAME: Final = "CodeCarbon"
METHOD: Final = "CodeCarbon"
_NEEDED: Final = frozenset(("run_id", "duration", "emissions", "energy_consumed"))
_MOST_S: Final = 10 * 365 * 86400.0
_MOST_KWH: Final = 1e6
# A row does not say how its energies were found. A GPU's may be of its counter or of power each
# second; CPU and RAM are mostly models, whose bound our own estimates have too.
_PARTS: Final[tuple[tuple[str, str, Scope, Origin, float], ...]] = (
    ("gpu", "gpu", "gpu", "measured", 0.1),
    ("cpu", "cpu", "host", "estimated", 0.5),
    ("ram", "dram", "host", "estimated", 0.5),
)

Row = dict[str, str]


def recognises(log: Log) -> bool:
    """The columns that all its versions have."""
    return set(log.columns()) >= _NEEDED


def records(log: Log) -> Iterator[Record]:
    """See ``Importer``."""
    damage = files.Damage()
    states = _states(log, damage)
    says = {run_id: _says(rows[-1]) for run_id, rows in states.items()}
    rows = chosen(log, states, says)
    row = max(rows, key=lambda one: at_least_0(one["duration"]) or 0.0)
    duration_s = at_least_0(row["duration"]) or 0.0
    stated_pue = number(row.get("pue"))
    pue = stated_pue if stated_pue is not None and 1.0 <= stated_pue <= 10.0 else 1.0
    place, problem = _place(row)
    devices = list(_devices(row, pue))
    energy = {device.key: one for device, _, one in devices}
    yield lines.header(log, _about(log, row, duration_s, place, pue))
    for device, sensor, _ in devices:
        yield journal.device_record(
            device, [Channel(device=device, quantity="energy", kind="counter", sensor=sensor)]
        )
    yield from lines.of_damage(log, damage)
    if problem:
        yield lines.warning("place_unknown", problem, "pass --country")
    yield from _doubts(row, energy, stated_pue, pue)
    yield from _remarks(row, len(rows))
    yield lines.span(lines.RECORDED, 0.0, duration_s, energy)
    yield lines.totals(duration_s, energy)


def _states(log: Log, damage: files.Damage) -> dict[str, list[Row]]:
    """Rows by run, in the order of the file."""
    names, found = log.columns(), dict[str, list[Row]]()
    for place, line in enumerate(files.lines(log.path, damage)):
        cells = files.cells(line)
        if place == 0 or not line.strip():
            continue
        row = dict(zip(names, cells, strict=False))
        duration_s = at_least_0(row.get("duration"))
        if len(cells) == len(names) and duration_s is not None and duration_s < _MOST_S:
            found.setdefault(words(row["run_id"]) or f"row {place}", []).append(row)
        else:
            damage.places += 1
    return found


def _says(row: Row) -> str:
    told = (row.get("project_name"), row.get("timestamp"), f"{row['duration']} s")
    return ", ".join(text for one in told if (text := words(one)))


def _devices(row: Row, pue: float) -> Iterator[tuple[Device, Sensor, Energy]]:
    for part, kind, scope, origin, relative in _PARTS:
        name = words(row.get(f"{part}_model")) or part.upper()
        energy_kwh = at_least_0(row.get(f"{part}_energy"))
        has_no_card = part == "gpu" and not energy_kwh and not words(row.get("gpu_model"))
        if not row.get(f"{part}_energy") or has_no_card:
            continue
        device = Device(key=f"{kind}0", kind=kind, scope=scope, name=name, origin=origin)
        sensor = Sensor(name="a row of CodeCarbon", relative_error=relative)
        yield device, sensor, _energy(energy_kwh, pue, relative)


def _energy(energy_kwh: float | None, pue: float, relative: float) -> Energy:
    """0 kWh is what CodeCarbon writes for a device that it could not read."""
    if not energy_kwh or energy_kwh > _MOST_KWH:
        return UNKNOWN
    energy_j = joules_from_kilowatt_hours(energy_kwh) / pue
    return Energy(energy_j=energy_j, systematic_j=relative * energy_j, method=METHOD, coverage=1.0)


def _place(row: Row) -> tuple[Mapping[str, Any], str]:
    """The place as a header has it, and what is wrong with it."""
    country, region = words(row.get("country_iso_code")), words(row.get("region"))
    if country is None:
        return {}, ""
    for one in (region, None):
        try:
            found = carbon.place(country, one)
        except ValueError:
            continue
        return asdict(found) | {"origin": "of CodeCarbon's row"}, ""
    return {}, f"CodeCarbon's row names a country that is not known: {country!r}."


def _about(log: Log, row: Row, duration_s: float, place: Mapping[str, Any], pue: float) -> About:
    ended = moment(row.get("timestamp"))
    names = ("experiment_id", "cloud_provider", "cloud_region", "os", "tracking_mode")
    tags = {name: text for name in names if (text := words(row.get(name)))}
    return About(
        program=NAME,
        version=words(row.get("codecarbon_version")),
        name=words(row.get("project_name")) or log.path.stem,
        unix_s=unix_s(ended) - duration_s if ended else log.path.stat().st_mtime,
        tags=tags,
        place=place,
        pue=pue,
    )


def _doubts(
    row: Row, energy: Mapping[str, Energy], stated_pue: float | None, pue: float
) -> Iterator[Record]:
    if stated_pue is not None and stated_pue != pue:
        message = f"CodeCarbon's row has a PUE of {stated_pue:g}, which cannot be; 1 is taken."
        yield lines.warning("pue_unknown", message)
    stated_kwh = above_0(row.get("energy_consumed"))
    known_j = math.fsum(one.energy_j or 0.0 for one in energy.values()) * pue
    stated_j = joules_from_kilowatt_hours(stated_kwh) if stated_kwh else known_j
    if not math.isclose(stated_j, known_j, rel_tol=0.01):
        yield lines.warning(
            "sum_differs",
            f"CodeCarbon's row states {stated_j:.6g} J in all, and {known_j:.6g} J of the devices "
            "that can be used; the figures here are those of the devices.",
        )


def _remarks(row: Row, states: int) -> Iterator[Record]:
    yield lines.remark(
        NAME,
        "energies are CodeCarbon's own totals; how each was found a row does not say: 10 % either "
        "way are taken as systematic error of the GPUs, 50 % of CPU and RAM",
    )
    stated_kg = at_least_0(row.get("emissions"))
    if stated_kg is not None:
        message = f"it stated {stated_kg:.6g} kg CO2e itself; the figure here is worked out anew"
        yield lines.remark(NAME, message)
    if states > 1:
        yield lines.remark(NAME, f"of {states} rows of this run the longest counts")
