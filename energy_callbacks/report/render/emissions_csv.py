"""Writes a report in the format of CodeCarbon's ``emissions.csv``, for tools like carbonboard."""

import csv
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from energy_callbacks.accounting.metrics.energy_sums import total
from energy_callbacks.core.extras import requires
from energy_callbacks.core.units import kilowatt_hours
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.sensing.codecarbon_import import quiet_codecarbon

Cell = str | float | None


def write(report: EnergyReport, path: Path) -> None:
    """Write a CSV file with one row and the columns of the installed version of CodeCarbon.

    As in CodeCarbon, energies (kWh), powers (W) and emissions (kg) include the PUE.
    Unknown values are empty cells, never 0.

    Raises:
        MissingExtraError: if CodeCarbon is not installed.
    """
    with requires("codecarbon"), quiet_codecarbon():
        from codecarbon.output_methods.emissions_data import EmissionsData
    columns = [field.name for field in fields(EmissionsData)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerow(_row(report))


def _row(report: EnergyReport) -> dict[str, Cell]:
    run, emissions, environment = report.run, report.emissions, report.environment
    ended = datetime.fromtimestamp(run.started_unix_s + run.duration_s, tz=UTC)
    kg = emissions.kg if emissions else None
    return {
        "timestamp": ended.strftime("%Y-%m-%dT%H:%M:%S"),
        "project_name": "energy_callbacks",
        "run_id": run.run_id,
        "duration": run.duration_s,
        "emissions": kg,
        "emissions_rate": _per_second(kg, run.duration_s),
        "country_name": environment.get("config.place.country_name"),
        "country_iso_code": environment.get("config.place.country"),
        "region": environment.get("config.place.region"),
        "codecarbon_version": version("codecarbon"),
        "on_cloud": "N",
        "pue": emissions.pue if emissions else 1.0,
        **dict(_energy_cells(report, emissions.pue if emissions else 1.0)),
    }


def _energy_cells(report: EnergyReport, pue: float) -> Iterator[tuple[str, Cell]]:
    known_j = []
    for name, kind in (("gpu", "gpu"), ("cpu", "cpu"), ("ram", "dram")):
        energy = total(device.energy for device in report.devices if device.kind == kind)
        if energy.energy_j is not None:
            known_j.append(energy.energy_j)
            yield f"{name}_energy", kilowatt_hours(energy.energy_j * pue)
            yield f"{name}_power", _per_second(energy.energy_j * pue, report.run.duration_s)
    yield "energy_consumed", kilowatt_hours(sum(known_j) * pue) if known_j else None


def _per_second(amount: float | None, duration_s: float) -> float | None:
    return None if amount is None or duration_s <= 0 else amount / duration_s
