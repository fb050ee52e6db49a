"""Reads the totals of a run from CodeCarbon's file; ``emissions.csv#RUN_ID`` selects the run.

Rows with the same ``run_id`` are cumulative totals of one run at different times; the row with the
longest duration is used. A file of tasks (``emissions_EXPERIMENT_RUN_ID.csv``) has a row for each
task of a run; each is read as a run, which ``#TASK`` selects.

Energies are in kWh. CodeCarbon multiplies energies by the PUE (power usage effectiveness of the
building). If the row states a PUE from 1 to 10, this module divides the energies by it.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.accounting.metrics.energy_sums import UNKNOWN
from energy_callbacks.core.records import Device, Energy, Origin, Scope, Sensor
from energy_callbacks.core.units import joules_from_kilowatt_hours
from energy_callbacks.importers import files, values
from energy_callbacks.importers import journal_lines as lines
from energy_callbacks.importers.protocol import Log

NAME: Final = "CodeCarbon"
_NEEDED: Final = frozenset(("run_id", "duration", "emissions", "energy_consumed"))
_TAGS: Final = ("experiment_id", "cloud_provider", "cloud_region", "os", "tracking_mode")
# Maximum plausible duration and energy of a run. A row with a longer duration is skipped; a larger
# energy is treated as unknown.
_MOST_S: Final = 10 * 365 * 86400.0
_MOST_KWH: Final = 1e6
# Parts of the machine: prefix of their columns, kind of the device, scope, origin, and bound of the
# relative error. A row does not say how its energies were measured. For GPUs, CodeCarbon reads the
# energy counter, or the power once per second; it mostly estimates CPU and RAM with models. The
# error bound of these models is assumed to be 50 %.
_PARTS: Final[tuple[tuple[str, str, Scope, Origin, float], ...]] = (
    ("gpu", "gpu", "gpu", "measured", 0.1),
    ("cpu", "cpu", "host", "estimated", 0.5),
    ("ram", "dram", "host", "estimated", 0.5),
)

Row = dict[str, str]


def recognises(log: Log) -> bool:
    """Return whether the file has the columns that all versions of CodeCarbon write."""
    return set(log.columns()) >= _NEEDED


def records(log: Log) -> Iterator[Record]:
    """Yield the journal of the log; see ``Importer.records``."""
    damage = files.Damage()
    states = _states(log, damage)
    rows = log.chosen(states, _label)
    row = max(rows, key=_duration_s)
    duration_s, ended = _duration_s(row), values.moment(row.get("timestamp"))
    stated_pue = values.number(row.get("pue"))
    pue = stated_pue if stated_pue is not None and 1.0 <= stated_pue <= 10.0 else 1.0
    place, problem = _place(row)
    devices = list(_devices(row, pue))
    energy = {device.key: one for device, _, one in devices}
    yield lines.header(
        log,
        NAME,
        values.unix_s(ended) - duration_s if ended else log.path.stat().st_mtime,
        version=values.short_text(row.get("codecarbon_version")),
        name=_text(row, "task_name", "project_name"),
        tags={name: text for name in _TAGS if (text := values.short_text(row.get(name)))},
        place=place,
        pue=pue,
    )
    for device, sensor, _ in devices:
        yield lines.device_line(device, {"energy": sensor})
    yield from lines.damage_warnings(log, damage)
    if problem:
        yield lines.warning("place_unknown", problem, "pass --country")
    yield from _warnings(row, energy, stated_pue, pue)
    yield from _remarks(row, len(rows))
    yield lines.span(lines.RECORDED, 0.0, duration_s, energy)
    yield lines.totals(duration_s, energy)


def _states(log: Log, damage: files.Damage) -> dict[str, list[Row]]:
    """Return the usable rows of each run by name of the task or run ID, in the order of the file.

    A row without both counts as a run of its own.
    """
    states = defaultdict[str, list[Row]](list)
    for line_number, row in log.rows(damage):
        duration_s = values.at_least_0(row["duration"])
        if duration_s is not None and duration_s < _MOST_S:
            states[_text(row, "task_name", "run_id") or f"row {line_number}"].append(row)
        else:
            damage.places += 1
    return states


def _text(row: Row, *names: str) -> str | None:
    """Return the text in the first of these columns that has one."""
    return next(filter(None, (values.short_text(row.get(name)) for name in names)), None)


def _duration_s(row: Row) -> float:
    return values.at_least_0(row["duration"]) or 0.0


def _label(states: Sequence[Row]) -> str:
    row = states[-1]
    texts = (row.get("project_name"), row.get("timestamp"), f"{row['duration']} s")
    return ", ".join(filter(None, map(values.short_text, texts)))


def _devices(row: Row, pue: float) -> Iterator[tuple[Device, Sensor, Energy]]:
    for part, kind, scope, origin, relative_error in _PARTS:
        name = values.short_text(row.get(f"{part}_model"))
        energy_kwh = values.at_least_0(row.get(f"{part}_energy"))
        has_no_card = part == "gpu" and not energy_kwh and not name
        if not row.get(f"{part}_energy") or has_no_card:
            continue
        device = Device(
            key=f"{kind}0", kind=kind, scope=scope, name=name or part.upper(), origin=origin
        )
        sensor = Sensor(name="a row of CodeCarbon", relative_error=relative_error)
        yield device, sensor, _energy(energy_kwh, pue, relative_error)


def _energy(energy_kwh: float | None, pue: float, relative_error: float) -> Energy:
    """Return the energy of a device.

    0 kWh counts as unknown, because it means that CodeCarbon could not read the energy.
    """
    if not energy_kwh or energy_kwh > _MOST_KWH:
        return UNKNOWN
    energy_j = joules_from_kilowatt_hours(energy_kwh) / pue
    return Energy(
        energy_j=energy_j, systematic_j=relative_error * energy_j, method=NAME, coverage=1.0
    )


def _place(row: Row) -> tuple[Mapping[str, Any], str]:
    """Return the location for the header of a journal, and a message for the user.

    If the row states no country, both are empty. If the country is not recognised, the location is
    empty, and the message says why. Otherwise, the message is empty.
    """
    country = values.short_text(row.get("country_iso_code"))
    if country is None:
        return {}, ""
    for region in (values.short_text(row.get("region")), None):
        try:
            place = carbon.place(country, region)
        except ValueError:
            continue
        return asdict(place) | {"origin": "of CodeCarbon's row"}, ""
    return {}, f"CodeCarbon's row contains an unknown country: {country!r}."


def _warnings(
    row: Row, energy: Mapping[str, Energy], stated_pue: float | None, pue: float
) -> Iterator[Record]:
    """Yield warnings: for a PUE outside 1 to 10, and for a total that is not the devices' sum.

    A total that differs from the sum by at most 1 % causes no warning.

    Args:
        row: the row that is used.
        energy: energy by device key, already divided by the PUE.
        stated_pue: PUE in the row; ``None`` if there is none.
        pue: PUE by which the energies were divided.
    """
    if stated_pue is not None and stated_pue != pue:
        message = f"CodeCarbon's row has a PUE of {stated_pue:g}, which is not possible; 1 is used."
        yield lines.warning("pue_unknown", message)
    stated_kwh = values.above_0(row.get("energy_consumed"))
    known_j = math.fsum(one.energy_j or 0.0 for one in energy.values()) * pue
    stated_j = joules_from_kilowatt_hours(stated_kwh) if stated_kwh else known_j
    if not math.isclose(stated_j, known_j, rel_tol=0.01):
        yield lines.warning(
            "sum_differs",
            f"CodeCarbon's row has a total of {stated_j:.6g} J, but its devices sum to "
            f"{known_j:.6g} J. The report uses the devices.",
        )


def _remarks(row: Row, states: int) -> Iterator[Record]:
    yield lines.remark(
        NAME,
        "the energies are CodeCarbon's totals. A row does not state how they were found, so the "
        "report assumes a systematic error of 10 % for GPUs and 50 % for CPU and RAM",
    )
    stated_kg = values.at_least_0(row.get("emissions"))
    if stated_kg is not None:
        message = (
            f"CodeCarbon stated {stated_kg:.6g} kg CO2e; the emissions of this report are "
            "computed again"
        )
        yield lines.remark(NAME, message)
    if states > 1:
        yield lines.remark(
            NAME,
            f"the log has {states} rows of this run; the one with the longest duration is used",
        )
