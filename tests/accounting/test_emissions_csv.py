"""The CSV row, read back with pandas as carbonboard does."""

from dataclasses import fields

import pandas as pd
import pytest
from codecarbon.output_methods.emissions_data import EmissionsData

from energy_callbacks.accounting.emissions_csv import write_emissions_csv
from energy_callbacks.accounting.metrics.carbon import EmissionsEstimate, place
from energy_callbacks.core.records import Energy

KWH_J = 3.6e6


def written(path, **changes):
    """One row of an hour with 2 kWh on GPUs, 1 kWh on CPUs and unknown memory."""
    settings = {
        "timestamp": "2026-01-02T03:04:05",
        "run_id": "abc",
        "duration_s": 3600.0,
        "gpu": Energy(energy_j=2 * KWH_J),
        "cpu": Energy(energy_j=1 * KWH_J),
        "ram": Energy(energy_j=None),
        "place": place("CAN", "quebec"),
        "emissions": EmissionsEstimate(kg=0.0144, low_kg=0.01, high_kg=0.1),
        "pue": 1.2,
        **changes,
    }
    write_emissions_csv(path / "emissions.csv", **settings)
    return pd.read_csv(path / "emissions.csv")


def test_columns_are_codecarbons(tmp_path):
    """The header is that of the installed CodeCarbon, in its order, above one row."""
    table = written(tmp_path)
    assert list(table.columns) == [field.name for field in fields(EmissionsData)]
    assert len(table) == 1


def test_units_are_codecarbons(tmp_path):
    """2 kWh in an hour at PUE 1.2 are 2.4 kWh and 2400 W; 14.4 g in an hour are 4 micrograms/s."""
    row = written(tmp_path, details={"cpu_model": "Xeon, gold"}).iloc[0]
    assert row.gpu_energy == pytest.approx(2.4)
    assert row.gpu_power == pytest.approx(2400.0)
    assert row.cpu_energy == pytest.approx(1.2)
    assert row.energy_consumed == pytest.approx(3.6)
    assert row.emissions == pytest.approx(0.0144)
    assert row.emissions_rate == pytest.approx(4e-6)
    assert (row.country_iso_code, row.country_name, row.region) == ("CAN", "Canada", "quebec")
    assert row.cpu_model == "Xeon, gold"


def test_unknown_is_empty(tmp_path):
    """Unknown memory, place and emissions are empty cells, not zeros."""
    nothing = EmissionsEstimate(kg=None, low_kg=0.1, high_kg=2.0)
    row = written(tmp_path, place=place(), emissions=nothing).iloc[0]
    assert row[["ram_energy", "ram_power", "emissions", "country_name", "latitude"]].isna().all()


def test_wrong_detail_is_refused(tmp_path):
    """A column that CodeCarbon does not have is a mistake, and no file is written."""
    with pytest.raises(ValueError, match="gpu_colour"):
        written(tmp_path, details={"gpu_colour": "green"})
    assert list(tmp_path.iterdir()) == []
