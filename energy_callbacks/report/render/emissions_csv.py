"""A report as a row of CodeCarbon's ``emissions.csv``, for carbonboard and other readers of it."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from energy_callbacks.accounting.emissions_csv import write_emissions_csv
from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.accounting.metrics.energy_sums import total
from energy_callbacks.core.records import Energy
from energy_callbacks.report.model.models import DeviceUse
from energy_callbacks.report.model.schema import EnergyReport


def write(report: EnergyReport, path: Path) -> None:
    """Write the file anew; what is not known is an empty cell."""
    run, emissions = report.run, report.emissions
    ended = datetime.fromtimestamp(run.started_unix_s + run.duration_s, tz=UTC)
    write_emissions_csv(
        path,
        timestamp=ended.strftime("%Y-%m-%dT%H:%M:%S"),
        run_id=run.run_id,
        duration_s=run.duration_s,
        gpu=_of_kind(report.devices, "gpu"),
        cpu=_of_kind(report.devices, "cpu"),
        ram=_of_kind(report.devices, "dram"),
        place=_place(report),
        emissions=carbon.EmissionsEstimate(
            kg=emissions.kg if emissions else None,
            low_kg=emissions.low_kg if emissions else None,
            high_kg=emissions.high_kg if emissions else None,
        ),
        pue=emissions.pue if emissions else 1.0,
    )


def _of_kind(devices: Iterable[DeviceUse], kind: str) -> Energy:
    return total(device.energy for device in devices if device.kind == kind)


def _place(report: EnergyReport) -> carbon.Place:
    country, country_name, region = (
        report.environment.get(f"config.place.{name}")
        for name in ("country", "country_name", "region")
    )
    return carbon.Place(country=country, country_name=country_name, region=region)
