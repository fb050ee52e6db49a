"""One run as a row of CodeCarbon's ``emissions.csv``, for carbonboard and other readers of it."""

import csv
from collections.abc import Mapping
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path

from energy_callbacks.accounting.metrics.carbon import EmissionsEstimate, Place
from energy_callbacks.core.records import Energy
from energy_callbacks.core.units import kilowatt_hours
from energy_callbacks.sensing.quiet_codecarbon import quiet_codecarbon

Cell = str | float | None


def write_emissions_csv(
    path: Path,
    *,
    timestamp: str,
    run_id: str,
    duration_s: float,
    gpu: Energy,
    cpu: Energy,
    ram: Energy,
    place: Place,
    emissions: EmissionsEstimate,
    pue: float = 1.0,
    details: Mapping[str, Cell] | None = None,
) -> None:
    """Write the file anew, with the columns of the CodeCarbon that is installed.

    As in CodeCarbon, energies and powers include the PUE, in kWh and W; emissions are kg.
    What is not known is an empty cell, never 0.

    Args:
        path: of the file.
        timestamp: when the run ended, ISO 8601.
        run_id: of the run.
        duration_s: of the run.
        gpu: energy at the GPUs.
        cpu: energy at the CPUs.
        ram: energy at the memory.
        place: of the run.
        emissions: of all three together, PUE included.
        pue: power usage effectiveness.
        details: further columns by CodeCarbon's names, such as ``cpu_model``.

    Raises:
        ValueError: if ``details`` names a column that CodeCarbon does not have.
    """
    columns = _columns()
    row: dict[str, Cell] = {
        "timestamp": timestamp,
        "project_name": "energy_callbacks",
        "run_id": run_id,
        "duration": duration_s,
        "emissions": emissions.kg,
        "emissions_rate": _each_second(emissions.kg, duration_s),
        "country_name": place.country_name,
        "country_iso_code": place.country,
        "region": place.region,
        "codecarbon_version": version("codecarbon"),
        "on_cloud": "N",
        "pue": pue,
        **_energy_cells({"gpu": gpu, "cpu": cpu, "ram": ram}, duration_s, pue),
        **_known(details or {}, columns),
    }
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerow(row)


def _energy_cells(energies: Mapping[str, Energy], duration_s: float, pue: float) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for name, energy in energies.items():
        energy_j = None if energy.energy_j is None else energy.energy_j * pue
        cells[f"{name}_energy"] = None if energy_j is None else kilowatt_hours(energy_j)
        cells[f"{name}_power"] = _each_second(energy_j, duration_s)
    known_j = [energy.energy_j for energy in energies.values() if energy.energy_j is not None]
    cells["energy_consumed"] = kilowatt_hours(sum(known_j) * pue) if known_j else None
    return cells


def _each_second(amount: float | None, duration_s: float) -> float | None:
    return None if amount is None or duration_s <= 0 else amount / duration_s


def _columns() -> list[str]:
    """Names in CodeCarbon's order: those of the record that it writes line by line."""
    with quiet_codecarbon():
        from codecarbon.output_methods.emissions_data import EmissionsData
    return [field.name for field in fields(EmissionsData)]


def _known(details: Mapping[str, Cell], columns: list[str]) -> Mapping[str, Cell]:
    unknown = sorted(set(details) - set(columns))
    if unknown:
        raise ValueError(
            f"emissions.csv has no such columns: got {unknown}; give some of {', '.join(columns)}"
        )
    return details
