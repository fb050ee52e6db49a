"""The report as a row of CodeCarbon's ``emissions.csv``, for carbonboard and other readers."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from energy_callbacks.accounting.emissions_csv import write_emissions_csv
from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.accounting.metrics.energy_sums import total
from energy_callbacks.core.records import Energy
from energy_callbacks.report.model.schema import EnergyReport


def write(report: EnergyReport, path: Path) -> None:
    """Write the file, replacing an old one; unknown values are empty cells."""
    run, emissions = report.run, report.emissions
    ended = datetime.fromtimestamp(run.started_unix_s + run.duration_s, tz=UTC)
    names = ("country", "country_name", "region")
    place: dict[str, Any] = {name: report.environment.get(f"config.place.{name}") for name in names}
    masses_kg = {name: getattr(emissions, name, None) for name in ("kg", "low_kg", "high_kg")}
    write_emissions_csv(
        path,
        timestamp=ended.strftime("%Y-%m-%dT%H:%M:%S"),
        run_id=run.run_id,
        duration_s=run.duration_s,
        gpu=_energy_of(report, "gpu"),
        cpu=_energy_of(report, "cpu"),
        ram=_energy_of(report, "dram"),
        place=carbon.Place(**place),
        emissions=carbon.EmissionsEstimate(**masses_kg),
        pue=emissions.pue if emissions else 1.0,
    )


def _energy_of(report: EnergyReport, kind: str) -> Energy:
    return total(device.energy for device in report.devices if device.kind == kind)
